"""Reads the examples of a file a block at a time, of a file of lines never more into memory."""

import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from finetune import datasets
from finetune.datasets import Read, table
from modules import plugins
from pretrain.data.corpus import text_files
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section, name_section

BLOCK_SIZE = 4096  # lines, or examples
BLANK = b" \r\n\xef\xbb\xbf"  # and the byte order mark, but no tab: it may part empty cells
WIDE = ("utf-16", "utf-32")  # encodings in which the byte of "\n" is not always a line's end


def read_blocks(
    path: str, format: str, fields: Mapping[str, Any], size: int | None = None
) -> Iterator[Read]:
    """Yields what `datasets.read` finds in a file or folder, `size` examples at a time, in order.

    Raises:
        UserError: as `datasets.read`.
    """
    size = size or BLOCK_SIZE
    header = count_header_lines(path, format, fields)
    # Tables without quotes and JSON lines are read in parts, all other formats as a whole.
    if header is None:
        whole = call_section("fields", datasets.read, fields, format=format, path=path)
        for at in range(0, len(whole.examples), size):
            yield Read(whole.examples[at : at + size], [] if at else whole.notes)
        return
    read, count = datasets.file_format(format).read, 0
    with name_section("fields"):
        plugins.check_fields(read, fields, path)
    with tempfile.TemporaryDirectory() as folder:
        # A format reads files, so each part is one, under the extension that names its kind.
        part = Path(folder) / drop_packing(path)
        for before, lines in split_lines(path, header, size):
            part.write_bytes(b"".join(lines))
            # Places and errors name the lines of the file itself.
            block = _read_part(lambda: read(str(part), **fields), part, path, before)
            count += len(block.examples)
            if block.examples or block.notes:
                yield block
    if not count:
        raise UserError(f"{path} holds no examples")


def count_header_lines(path: str, format: str, fields: Mapping[str, Any]) -> int | None:
    """Counts the lines that name the columns; None where an example may be more than a line."""
    if format == "multiple_choice":
        return 0
    if format not in ("table", "ranking") or fields.get("encoding", "").lower()[:6] in WIDE:
        return None
    kind = fields.get("kind") or ("lines" if fields.get("label_first") else table.kind_of(path))
    if kind == "jsonl":
        # Pairs of a query may stand in several places, and others are drawn of the whole file.
        return None if fields.get("pairs") or fields.get("random_negatives") else 0
    quoted = (kind == "csv") if fields.get("quoting") is None else fields["quoting"]
    if quoted or format == "ranking":  # whose queries may stand in several places of a table
        return None
    return int(kind != "lines" and fields.get("header", True))


def drop_packing(path: str) -> str:
    """Returns the name of a file without the extension of a packing."""
    name = Path(path)
    return name.stem if name.suffix in table.PACKED else name.name


def count_examples(path: str, format: str, fields: Mapping[str, Any]) -> int:
    """Counts the lines of a file below its header; 0 where an example may be more than a line."""
    header = count_header_lines(path, format, fields)
    if header is None:
        return 0
    count = sum(block.count(b"\n") for block in text_files.read_blocks(Path(path)))
    return max(count - header, 0)


def split_lines(path: str, header: int, size: int) -> Iterator[tuple[int, list[bytes]]]:
    """Splits a file into parts of `size` lines, each below the lines of the header.

    Yields:
        (how many lines of the file stand between the header and the part's own; the lines)
    """
    lines = _iter_lines(text_files.read_blocks(Path(path)))
    above: list[bytes] = []
    # With the blank lines over the header, which a table passes over.
    while header and (line := next(lines, b"")):
        above.append(line)
        header -= bool(line.strip(BLANK))
    before = 0
    part: list[bytes] = []
    for line in lines:
        # Blank lines stay with the lines behind them, as those at the end of a file count for none.
        if len(part) >= size and line.strip() and part[-1].strip():
            yield before, above + part
            before, part = before + len(part), []
        part.append(line)
    if part or not before:  # also of an empty file, whose error the format raises
        yield before, above + part


def _iter_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    unfinished: list[bytes] = []  # joined once a line ends: a line may span many blocks
    for block in blocks:
        *ended, rest = block.split(b"\n")
        for line in ended:
            yield b"".join([*unfinished, line, b"\n"])
            unfinished = []
        unfinished.append(rest)
    if last := b"".join(unfinished):
        yield last


def _read_part(read: Callable[[], Read], part: Path, path: str, before: int) -> Read:
    """Reads a part of a file; places, notes and errors name the lines of the file."""
    place = re.compile(re.escape(str(part)) + r"(?:(, line )(\d+(?:, \d+)*))?")

    def rename_one(match: re.Match[str]) -> str:
        numbers = [str(int(x) + before) for x in match[2].split(", ")] if match[2] else []
        return f"{path}{match[1] or ''}{', '.join(numbers)}"

    def rename(message: str) -> str:
        return place.sub(rename_one, message)

    try:
        block = read()
    except UserError as error:
        raise UserError(rename(str(error))) from error
    for example in block.examples:
        example["where"] = rename(example["where"])
    return Read(block.examples, [rename(note) for note in block.notes])
