"""Reads text, lines and JSON for the formats, with errors that name the place."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pretrain.data.corpus.text_files import read_blocks
from pretrain.runtime.errors import UserError

TYPE_NAMES = {
    str: "text",
    list: "a list",
    dict: "an object",
    int: "a whole number",
    bool: "a boolean",
}


def text(path: str | Path, encoding: str = "utf-8") -> str:
    """Returns the text of a file, plain, .gz or .zst, without a byte order mark.

    Raises:
        UserError: the file is missing, empty, cut short or not in the encoding, or holds NUL bytes.
    """
    raw = b"".join(read_blocks(Path(path)))
    try:
        decoded = raw.decode(encoding)
    except LookupError as error:
        raise UserError(f"encoding={encoding!r} is not known") from error
    except UnicodeDecodeError as error:
        line, at = raw.count(b"\n", 0, error.start) + 1, error.start
        raise UserError(
            f"{path}, line {line}: the byte at offset {at} is not {encoding.upper()}: name another "
            "encoding, as --config.data.encoding=latin-1, or write the file anew: "
            "iconv -f latin1 -t utf-8"
        ) from error
    # UTF-16 read as UTF-8, or a binary file.
    if (at := decoded.find("\0")) >= 0:
        line = decoded.count("\n", 0, at) + 1
        raise UserError(f"{path}, line {line}: a NUL byte: is this a text file?")
    if not decoded.strip():
        raise UserError(f"{path}: empty file")
    return decoded.removeprefix("\ufeff")


def lines(path: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yields lines with their numbers from 1; trailing blank lines are dropped."""
    # Not splitlines: a text may well hold a form feed or a line separator of Unicode.
    for number, line in enumerate(text(path, encoding).rstrip("\r\n").split("\n"), 1):
        yield number, line.removesuffix("\r")


def parse_json(source: str, where: str) -> Any:
    """Parses JSON; UserError if it is malformed."""
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:  # the latter by deep nesting
        raise UserError(f"{where}: is not JSON: {error}") from error


def field(record: Any, name: str, kind: type, where: str) -> Any:
    """Returns the value of a JSON object's field; UserError if it is missing or of another type."""
    if not isinstance(record, dict):
        raise UserError(f"{where}: should be an object with {name!r}, and is {record!r:.60}")
    if name not in record:
        has = ", ".join(map(repr, record)) or "nothing"
        raise UserError(f"{where}: has no {name!r}, but {has:.200}")
    value = record[name]
    # To Python a bool is an int, to JSON it is not.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UserError(f"{where}: {name!r} should be {TYPE_NAMES[kind]}, and is {value!r:.60}")
    return value


def check_text(value: Any, what: str, where: str, empty: bool = False) -> str:
    """Returns a text unchanged; UserError if it is no text, blank, or half a character."""
    if not isinstance(value, str):
        raise UserError(f"{where}: {what} should be text, and is {value!r:.60}")
    if not value.strip() and not empty:
        raise UserError(f"{where}: {what} is empty")
    try:
        value.encode()  # JSON can spell a lone surrogate, which no tokenizer can read
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: {what} has half a character, {value[error.start]!r}") from error
    return value


def check_count(count: int, columns: Sequence[str], where: str, how: str = "") -> None:
    """Raises a UserError if an example has other texts than the columns of a run's table.

    Args:
        columns: (): any number of texts will do.
        how: what to do, behind the message.
    """
    if columns and count != len(columns):
        raise UserError(
            f"{where} has {count} texts, and this run's task has {len(columns)}: "
            f"{', '.join(columns)}{how}"
        )


def label_names(labels: Mapping[str, str] | Sequence[str] | None) -> dict[str, str] | None:
    """Returns the permitted labels, by their names in the file; a list names them as they are."""
    if labels is None:
        return None
    # A section of a recipe is a mapping without being a Mapping.
    names = dict(labels.items()) if hasattr(labels, "items") else dict.fromkeys(labels, "")
    return {str(raw): str(name or raw) for raw, name in names.items()}


def rename_label(raw: str, names: Mapping[str, str] | None, where: str) -> str:
    """Returns the name of a label in the file; UserError if it is empty or not permitted."""
    if not raw:
        raise UserError(f"{where}: the label is empty")
    if names is not None and raw not in names:
        raise UserError(f"{where}: the label {raw!r} is not one of {', '.join(names)}")
    return names[raw] if names else raw


class Skipped:
    """Counts what is left out on purpose, by reason, and keeps the first places of each."""

    def __init__(self) -> None:
        self.first: dict[str, list[str]] = {}
        self.count: dict[str, int] = {}

    def add(self, reason: str, first: str, most: int = 1) -> None:
        """Counts one more.

        Args:
            first: its place, or its error.
            most: so many of them are kept.
        """
        kept = self.first.setdefault(reason, [])
        if len(kept) < most:
            kept.append(first)
        self.count[reason] = self.count.get(reason, 0) + 1

    def notes(self) -> list[str]:
        return [
            f"left out: {reason}: {self.count[reason]:,}, the first at {join_places(first)}"
            for reason, first in self.first.items()
        ]


def join_places(places: Sequence[str]) -> str:
    """Joins places of one file, of which it is named once: "a.csv, line 3, 5, 8"."""
    path, comma, _ = places[0].rpartition(", ")
    unit = places[0].removeprefix(path + comma).partition(" ")[0]
    others = [place.removeprefix(f"{path}{comma}{unit} ") for place in places[1:]]
    return ", ".join([places[0], *others])
