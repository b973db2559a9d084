"""Reads text files of any size in blocks, then lines, never a whole file at once."""

import codecs
import functools
import gzip
import itertools
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from pretrain.runtime.errors import UserError

LONGEST = 1 << 15  # characters; a longer line comes in parts
LONGEST_WHOLE = 1 << 20  # characters of a line that is wanted whole
BLOCK = 1 << 16
NOT_UTF8 = "is not UTF-8: write the file anew, by iconv -f latin1 -t utf-8 if it is Latin-1"


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a text file, plain, .gz or .zst; see `split_lines`.

    Raises:
        UserError: the file is missing, empty, cut short, not UTF-8, or holds NUL bytes.
    """
    return split_lines(decode_blocks(read_blocks(path), str(path)))


def read_whole_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a text file, each in one piece and without its end.

    Raises:
        UserError: as `read_lines`; or a line is longer than LONGEST_WHOLE.
    """
    return join_parts(read_lines(path), str(path))


def read_input_lines() -> Iterator[str]:
    """Yields the lines of standard input as they come, otherwise as `read_whole_lines`."""
    name, blocks = "standard input", iter(functools.partial(sys.stdin.buffer.readline, BLOCK), b"")
    return join_parts(split_lines(decode_blocks(blocks, name)), name)


def read_blocks(path: Path) -> Iterator[bytes]:
    """Yields the bytes of a file, unpacked, in blocks."""
    try:
        yield from PACKINGS.get(path.suffix, _read_plain)(path)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path}: broken or cut short: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read_plain(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block


def _read_gzip(path: Path) -> Iterator[bytes]:
    with path.open("rb") as packed, gzip.open(packed) as file:
        while block := file.read(BLOCK):
            yield block


def _read_zstd(path: Path) -> Iterator[bytes]:
    # Not by `stream_reader`, which takes a file cut short for a complete one.
    import zstandard

    frame = None
    with path.open("rb") as file:
        while packed := file.read(1024):  # little: it may unpack to thousands of times its size
            while packed:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    block = frame.decompress(packed)
                except zstandard.ZstdError as error:
                    raise EOFError(error) from error
                if block:  # an empty one would be the text's end
                    yield block
                packed, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame:
        raise EOFError("the last frame is not complete")


PACKINGS: dict[str, Callable[[Path], Iterator[bytes]]] = {".gz": _read_gzip, ".zst": _read_zstd}


def decode_blocks(blocks: Iterable[bytes], name: str) -> Iterator[str]:
    """Decodes UTF-8, without its byte order mark.

    Args:
        blocks: bytes, cut anywhere.
        name: what errors call this text.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    offset, line, text = 0, 1, ""
    for block in itertools.chain(blocks, [b""]):  # the last one finds a character cut off
        begin = offset - len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            line += error.object.count(b"\n", 0, error.start)
            raise _byte_error(name, line, begin + error.start, NOT_UTF8) from error
        if "\0" in text:
            before = text[: text.index("\0")]
            line, at = line + before.count("\n"), begin + len(before.encode())
            raise _byte_error(name, line, at, "is NUL: is this a text file?")
        yield text if begin else text.removeprefix("\ufeff")
        line, offset = line + text.count("\n"), offset + len(block)
    if not offset:
        raise UserError(f"{name}: empty file")


def _byte_error(name: str, line: int, offset: int, what: str) -> UserError:
    return UserError(f"{name}, line {line}: the byte at offset {offset} {what}")


def split_lines(texts: Iterable[str]) -> Iterator[str]:
    """Yields lines with their "\\n"; one longer than LONGEST comes in parts, see `split_line`."""
    rest = ""
    for text in texts:
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield from split_line(line + "\n")
        *early, rest = split_line(rest)  # else a file without line ends would be read whole
        yield from early
    if rest:
        yield rest + "\n"


def join_parts(parts: Iterable[str], name: str) -> Iterator[str]:
    """Joins the parts of `split_lines` to whole lines, without their ends.

    Args:
        name: what errors call this text.

    Raises:
        UserError: a line is longer than LONGEST_WHOLE.
    """
    line, number = "", 1
    for part in parts:
        line += part
        if line.endswith("\n"):
            yield line.rstrip("\r\n")
            line, number = "", number + 1
        elif len(line) > LONGEST_WHOLE:  # or a file without line ends would fill the memory
            raise UserError(
                f"{name}, line {number}: longer than {LONGEST_WHOLE:,} characters: this wants a "
                "text with a sentence in each line"
            )


def split_line(line: str, longest: int = LONGEST) -> Iterator[str]:
    """Cuts a line after blanks into parts of at most `longest`; inside a word if there is none."""
    while len(line) > longest:
        cut = line.rfind(" ", 0, longest) + 1 or longest
        yield line[:cut]
        line = line[cut:]
    yield line
