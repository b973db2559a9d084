"""Examples of a file a block at a time: of a file of lines never more than a block is in memory."""

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

SIZE = 4096  # lines, or examples
WIDE = ("utf-16", "utf-32")  # encodings in which the byte of "\n" is not always a line's end


def blocks(
    path: str, format: str, fields: Mapping[str, Any], size: int | None = None
) -> Iterator[Read]:
    """What `datasets.read` finds in a file or folder, so many examples at a time, in its order.

    Tables without quotes and JSON lines are read in pieces; what else there is as a whole.  Places
    and errors name the lines of the file itself.

    Raises:
        UserError: as `datasets.read`.
    """
    size = size or SIZE
    header = lines_above(path, format, fields)
    if header is None:
        whole = call_section("fields", datasets.read, fields, format=format, path=path)
        for at in range(0, len(whole.examples), size):
            yield Read(whole.examples[at : at + size], [] if at else whole.notes)
        return
    read, count = datasets.file_format(format).read, 0
    with name_section("fields"):
        plugins.check_fields(read, fields, path)
    with tempfile.TemporaryDirectory() as folder:
        piece = Path(folder) / unpacked(path)
        for number, lines in pieces(path, header, size):
            piece.write_bytes(b"".join(lines))
            found = _placed(lambda: read(str(piece), **fields), piece, path, number - header)
            count += len(found.examples)
            if found.examples or found.notes:
                yield found
    if not count:
        raise UserError(f"{path} holds no examples")


def lines_above(path: str, format: str, fields: Mapping[str, Any]) -> int | None:
    """How many lines name the columns; None where an example may be more than a line."""
    if format == "multiple_choice":
        return 0
    if format not in ("table", "ranking") or fields.get("encoding", "").lower()[:6] in WIDE:
        return None
    kind = fields.get("kind") or ("lines" if fields.get("label_first") else table.kind_of(path))
    if kind == "jsonl":
        return 0
    quoted = (kind == "csv") if fields.get("quoting") is None else fields["quoting"]
    if quoted or format == "ranking":  # whose queries may stand in several places of a table
        return None
    return int(kind != "lines" and fields.get("header", True))


def unpacked(path: str) -> str:
    """The name of the file without that of a packing."""
    own = Path(path)
    return own.stem if own.suffix in table.PACKED else own.name


def pieces(path: str, header: int, size: int) -> Iterator[tuple[int, list[bytes]]]:
    """So many lines at a time below the header's, and the number of the first below it, from 1.

    Blank lines go with what is behind them: at the end of a file they are none.
    """
    lines = _lines(text_files.read_blocks(Path(path)))
    above = [line for _, line in zip(range(header), lines, strict=False)]
    first = header + 1
    held: list[bytes] = []
    for line in lines:
        if len(held) >= size and line.strip() and held[-1].strip():
            yield first, above + held
            first, held = first + len(held), []
        held.append(line)
    if held or first == header + 1:
        yield first, above + held


def _lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    held: list[bytes] = []
    for block in blocks:
        *ended, rest = block.split(b"\n")
        for line in ended:
            yield b"".join([*held, line, b"\n"])
            held = []
        held.append(rest)
    if last := b"".join(held):
        yield last


def _placed(read: Callable[[], Read], piece: Path, path: str, before: int) -> Read:
    """What is read, under the name and the lines of the file that the piece is of."""
    place = re.compile(re.escape(str(piece)) + r"(, line )?(\d+)?")

    def own(said: str) -> str:
        return place.sub(
            lambda m: f"{path}{m[1]}{int(m[2]) + before - 1}" if m[2] else f"{path}", said
        )

    try:
        found = read()
    except UserError as error:
        raise UserError(own(str(error))) from error
    for example in found.examples:
        example["where"] = own(example["where"])
    return Read(found.examples, [own(note) for note in found.notes])
