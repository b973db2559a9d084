"""Hashes the inputs of a corpus, and says which of them changed."""

import contextlib
from pathlib import Path
from typing import Any

from pretrain.runtime import json_files
from pretrain.runtime.addresses import remove_credentials
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import hash_file
from pretrain.runtime.progress import say

REMEMBERED = "hashes.json"


def hash_inputs(paths: list[Path], cache: Path) -> dict[str, str]:
    """Returns {path: sha256} of files; one of unchanged size and time is not read again."""
    record = cache / REMEMBERED
    entries = _read_record(record)
    by_name = {remove_credentials(str(path.resolve())): path for path in paths}
    stamps = {name: [*stamp_file(path)] for name, path in by_name.items()}
    fresh = {
        name: [*stamps[name], _hash_input(path)]
        for name, path in by_name.items()
        if entries.get(name, [])[:2] != stamps[name]
    }
    if fresh:
        entries |= fresh
        with contextlib.suppress(OSError):  # a cache that is only to be read
            json_files.write_sealed(record, entries)
    return {name: entries[name][2] for name in by_name}


def _read_record(record: Path) -> dict[str, list]:
    # {} where it is damaged, as files can be hashed again.
    if not record.exists():
        return {}
    try:
        entries = json_files.read_sealed(record)
    except UserError as error:
        entries = {str(error): None}
    if all(map(_is_entry, entries.values())):
        return entries
    say(f"{record} is damaged: the text is hashed again", every_process=True)
    return {}


def _is_entry(entry: Any) -> bool:
    # [size, time, sha256]; an older list has no digest of its own.
    return isinstance(entry, list) and len(entry) == 3 and isinstance(entry[2], str)


def stamp_file(path: Path) -> tuple[int, int | str]:
    """Returns (bytes, nanoseconds of the last change, or another value that changes with it)."""
    status = path.stat()
    if files := getattr(path, "fs", None):  # of fsspec, where not every system has such a time
        return status.st_size, files.ukey(path.path)  # type: ignore[attr-defined]
    return status.st_size, status.st_mtime_ns


def _hash_input(path: Path) -> str:
    try:
        return hash_file(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def describe_difference(old: dict[str, str], new: dict[str, str]) -> str:
    """Says "a.txt changed, b.txt is new": at most three files by name, the others counted."""
    lines = [f"{p} changed" for p in new if p in old and old[p] != new[p]]
    lines += [f"{p} is new" for p in new if p not in old]
    lines += [f"{p} is gone" for p in old if p not in new]
    return ", ".join(lines[:3]) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
