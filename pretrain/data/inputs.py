"""What a corpus is made from: the sha256 of each input, and which of them changed."""

import hashlib
import json
import os
from pathlib import Path

from pretrain.errors import UserError

REMEMBERED = "hashes.json"


def hashes(paths: list[Path], cache: Path) -> dict[str, str]:
    """Path to sha256; a file of the same size and time as before is not read again."""
    record = cache / REMEMBERED
    known = json.loads(record.read_text()) if record.exists() else {}
    seen = {str(path.resolve()): path for path in paths}
    stamps = {name: [*stamp(path)] for name, path in seen.items()}
    fresh = {
        name: [*stamps[name], _sha256(path)]
        for name, path in seen.items()
        if known.get(name, [])[:2] != stamps[name]
    }
    if fresh:
        known |= fresh
        draft = record.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(known))
        draft.replace(record)
    return {path: known[path][2] for path in seen}


def stamp(path: Path) -> tuple[int, int | str]:
    """(size in bytes, time of the last change in nanoseconds, or what else changes with a file)."""
    status = path.stat()
    if files := getattr(path, "fs", None):  # of fsspec, where not every system has such a time
        return status.st_size, files.ukey(path.path)  # type: ignore[attr-defined]
    return status.st_size, status.st_mtime_ns


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def difference(old: dict[str, str], new: dict[str, str]) -> str:
    """ "a.txt changed, b.txt is new": at most three files by name, the others counted."""
    told = [f"{p} changed" for p in new if p in old and old[p] != new[p]]
    told += [f"{p} is new" for p in new if p not in old]
    told += [f"{p} is gone" for p in old if p not in new]
    return ", ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")
