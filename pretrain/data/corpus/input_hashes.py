"""What a corpus is made from: the sha256 of each input, and which of them changed."""

from pathlib import Path
from typing import Any

from pretrain.runtime import sealed_json
from pretrain.runtime.addresses import without_credentials
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import hash_file
from pretrain.runtime.progress import say

REMEMBERED = "hashes.json"


def hashes(paths: list[Path], cache: Path) -> dict[str, str]:
    """Path to sha256; a file of the same size and time as before is not read again."""
    record = cache / REMEMBERED
    known = _read_record(record)
    seen = {without_credentials(str(path.resolve())): path for path in paths}
    stamps = {name: [*stamp(path)] for name, path in seen.items()}
    fresh = {
        name: [*stamps[name], _sha256(path)]
        for name, path in seen.items()
        if known.get(name, [])[:2] != stamps[name]
    }
    if fresh:
        known |= fresh
        sealed_json.write(record, known)
    return {path: known[path][2] for path in seen}


def _read_record(record: Path) -> dict[str, list]:
    """What `hashes` wrote; nothing where it is damaged, as it can be found again."""
    if not record.exists():
        return {}
    try:
        known = sealed_json.read(record)
    except UserError as error:
        known = {str(error): None}
    if all(map(_is_entry, known.values())):
        return known
    say(f"{record} is damaged: the text is hashed again", every_process=True)
    return {}


def _is_entry(entry: Any) -> bool:
    """Whether this is a size, a time and a sha256; a list of before may hold a damaged one."""
    return isinstance(entry, list) and len(entry) == 3 and isinstance(entry[2], str)


def stamp(path: Path) -> tuple[int, int | str]:
    """(size in bytes, time of the last change in nanoseconds, or what else changes with a file)."""
    status = path.stat()
    if files := getattr(path, "fs", None):  # of fsspec, where not every system has such a time
        return status.st_size, files.ukey(path.path)  # type: ignore[attr-defined]
    return status.st_size, status.st_mtime_ns


def _sha256(path: Path) -> str:
    try:
        return hash_file(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def difference(old: dict[str, str], new: dict[str, str]) -> str:
    """ "a.txt changed, b.txt is new": at most three files by name, the others counted."""
    told = [f"{p} changed" for p in new if p in old and old[p] != new[p]]
    told += [f"{p} is new" for p in new if p not in old]
    told += [f"{p} is gone" for p in old if p not in new]
    return ", ".join(told[:3]) + (f" and {len(told) - 3} more" if len(told) > 3 else "")
