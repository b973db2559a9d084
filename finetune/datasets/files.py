"""What the formats share: a file's whole text, its lines and its JSON, and errors with a place."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pretrain.data.corpus.text_files import blocks
from pretrain.runtime.errors import UserError

NAMES = {str: "text", list: "a list", dict: "an object", int: "a whole number", bool: "a boolean"}


def text(path: str | Path, encoding: str = "utf-8") -> str:
    """All of a file, plain, .gz or .zst, without a byte order mark.

    Raises:
        UserError: the file is missing, empty, cut short or not in the encoding, or holds NUL bytes.
    """
    raw = b"".join(blocks(Path(path)))
    try:
        decoded = raw.decode(encoding)
    except LookupError as error:
        raise UserError(f"encoding={encoding!r} is not known") from error
    except UnicodeDecodeError as error:
        line, at = raw.count(b"\n", 0, error.start) + 1, error.start
        hint = f"{encoding.upper()}: if the file has another, name it, encoding='latin-1' perhaps"
        raise UserError(f"{path}, line {line}: the byte at offset {at} is not {hint}") from error
    if (at := decoded.find("\0")) >= 0:
        line = decoded.count("\n", 0, at) + 1
        raise UserError(f"{path}, line {line}: a NUL byte: is this a text file?")
    if not decoded.strip():
        raise UserError(f"{path}: empty file")
    return decoded.removeprefix("\ufeff")


def lines(path: str, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Lines and their numbers from 1; only "\\n" and "\\r\\n" end one, blank last ones are none."""
    for number, line in enumerate(text(path, encoding).rstrip("\r\n").split("\n"), 1):
        yield number, line.removesuffix("\r")


def parsed(source: str, where: str) -> Any:
    """JSON; UserError if it is none."""
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: is not JSON: {error}") from error


def field(record: Any, name: str, kind: type, where: str) -> Any:
    """What a JSON object has under a name; UserError if it is missing or of another type."""
    if not isinstance(record, dict):
        raise UserError(f"{where}: should be an object with {name!r}, and is {record!r:.60}")
    if name not in record:
        has = ", ".join(map(repr, record)) or "nothing"
        raise UserError(f"{where}: has no {name!r}, but {has:.200}")
    value = record[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UserError(f"{where}: {name!r} should be {NAMES[kind]}, and is {value!r:.60}")
    return value


def wording(value: Any, what: str, where: str, empty: bool = False) -> str:
    """The text itself, untouched; UserError if it is none, or blank, or half a character."""
    if not isinstance(value, str):
        raise UserError(f"{where}: {what} should be text, and is {value!r:.60}")
    if not value.strip() and not empty:
        raise UserError(f"{where}: {what} is empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: {what} has half a character, {value[error.start]!r}") from error
    return value


def known(labels: Mapping[str, str] | Sequence[str] | None) -> dict[str, str] | None:
    """The labels that may be, by their names in the file; a list of names stands for itself."""
    if labels is None:
        return None
    names = dict(labels.items()) if hasattr(labels, "items") else dict.fromkeys(labels, "")
    return {str(raw): str(name or raw) for raw, name in names.items()}


def labelled(raw: str, names: Mapping[str, str] | None, where: str) -> str:
    """The name of a label in the file; UserError if `labels` has not got it, or it is empty."""
    if not raw:
        raise UserError(f"{where}: the label is empty")
    if names is not None and raw not in names:
        raise UserError(f"{where}: the label {raw!r} is not one of {', '.join(names)}")
    return names[raw] if names else raw


class Skipped:
    """Counts what is left out on purpose, by reason, and remembers the first of each."""

    def __init__(self) -> None:
        self.first: dict[str, str] = {}
        self.count: dict[str, int] = {}

    def add(self, reason: str, first: str) -> None:
        """One more; `first` is its place, or its error."""
        self.first.setdefault(reason, first)
        self.count[reason] = self.count.get(reason, 0) + 1

    def notes(self) -> list[str]:
        """A line per reason."""
        return [
            f"left out: {reason}: {self.count[reason]:,}, the first at {first}"
            for reason, first in self.first.items()
        ]
