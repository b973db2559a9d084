"""Reads the texts of files of records, one record at a time: JSON lines and Parquet."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pretrain.data.corpus import text_files
from pretrain.runtime.errors import UserError

ROWS = 256  # of a Parquet file that are in memory at a time, beside the pages that they come of


def read_json_lines(path: Path, key: str) -> Iterator[Iterator[str]]:
    """Yields the lines of each record's text; records without text are passed over.

    Args:
        path: a file with a JSON object a line, plain, .gz or .zst.
        key: of the text.

    Raises:
        UserError: a line is no object, has no such key, or holds something else than text there.
    """
    for number, line in enumerate(_read_byte_lines(path), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:  # not UTF-8, no JSON, or a thousand deep
            raise UserError(f"{where}: no JSON: {error}") from error
        if not isinstance(record, dict):
            raise UserError(f"{where}: no object, but a {type(record).__name__}")
        if key not in record:
            raise UserError(f"{where}: {_describe_keys(key, record)}")
        if lines := split_text(record[key], where, key):
            yield lines


def _read_byte_lines(path: Path) -> Iterator[bytes]:
    # A line may lie in several blocks: its parts are joined once, at its end.
    parts: list[bytes] = []
    for block in text_files.read_blocks(path):
        first, *others = block.split(b"\n")
        parts.append(first)
        for following in others:
            yield b"".join(parts)
            parts = [following]
    yield b"".join(parts)


def read_parquet(path: Path, key: str) -> Iterator[Iterator[str]]:
    """Yields the lines of each row's text; rows without text are passed over.

    Args:
        path: a Parquet file.
        key: the column of the text; no other is read.

    Raises:
        UserError: it is no such file, is damaged, or has no such column of text.
    """

    def select(names: list[str]) -> list[str]:
        if key not in names:
            raise UserError(f"{path}: {_describe_keys(key, names)}")
        return [key]

    for number, row in iter_parquet_rows(path, select):
        if lines := split_text(row[key], f"{path}, row {number}", key):
            yield lines


def iter_parquet_rows(
    path: Path, select: Callable[[list[str]], list[str]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the rows of a Parquet file, numbered from 1.

    Args:
        select: takes the names of the columns, and returns those to read.

    Raises:
        UserError: it is no such file, or is damaged.
    """
    import pyarrow  # here: it takes a second, which other files need not wait for
    import pyarrow.parquet

    before = 0
    try:
        # Opened here, the file is closed however reading ends.
        with path.open("rb") as opened, pyarrow.parquet.ParquetFile(opened) as file:
            columns = select(file.schema_arrow.names)
            for batch in file.iter_batches(ROWS, columns=columns):
                yield from enumerate(batch.to_pylist(), before + 1)
                before += batch.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: cannot be read as Parquet: {error}") from error


def split_text(value: Any, where: str, key: str) -> Iterator[str] | None:
    """Returns the lines of a record's text; None: it has none.

    Raises:
        UserError: it is no text, or holds what no text file holds.
    """
    # An empty list or a 0 is no text, and is refused below.
    if not value and (value is None or isinstance(value, str)):
        return None
    if not isinstance(value, str):
        raise UserError(f"{where}: {key!r} is no text, but {type(value).__name__} {value!r:.40}")
    # JSON can spell half of a surrogate pair, which UTF-8 has no bytes for.
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: character {error.start} of {key!r} is no text") from error
    return text_files.split_lines(text_files.decode_blocks([encoded], f"{where}, {key!r}"))


def _describe_keys(key: str, keys: Iterable[str]) -> str:
    return f"there is no {key!r}, but {', '.join(map(repr, keys))}: name the text by text_key"


READERS: dict[str, Callable[[Path, str], Iterator[Iterator[str]]]] = {
    "jsonl": read_json_lines,
    "parquet": read_parquet,
}
SUFFIXES = {"jsonl": (".jsonl", ".ndjson"), "parquet": (".parquet",)}
