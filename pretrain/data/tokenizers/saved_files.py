"""Writes the files of a tokenizer with their sha256 beside them, so that damage is noticed."""

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

from pretrain.runtime import json_files
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import hash_file, write_file

RECORD = "sha256.json"


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes the files, then their hashes; nothing if all of that exists already."""
    if folder.is_symlink():  # it leads to the tokenizer of another run
        folder.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    # Checksums are of the content that was meant, not of what the disk returns.
    record = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    if _is_there(folder, record):
        return
    (folder / RECORD).unlink(missing_ok=True)  # a kill from here on leaves files without one
    for name, content in files.items():
        write_file(folder / name, content)
    json_files.write_sealed(folder / RECORD, record)


def find_damaged_file(folder: Path) -> str | None:
    """Returns the name of a damaged file, or None; None too where no hashes were saved."""
    if not (folder / RECORD).exists():
        return None
    try:
        record = json_files.read_sealed(folder / RECORD)
    except UserError:
        return RECORD
    return next(
        (name for name, sha256 in record.items() if _hash_or_empty(folder / name) != sha256), None
    )


def hash_saved(folder: Path) -> str:
    """Hashes all files of a saved tokenizer, without their hashes and drafts."""
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.name != RECORD and not path.name.startswith("."):
            total.update(path.name.encode() + b"\0" + bytes.fromhex(hash_file(path)))
    return total.hexdigest()


def _is_there(folder: Path, record: dict[str, str]) -> bool:
    paths = [folder / name for name in (*record, RECORD)]
    with contextlib.suppress(UserError):
        # A file that is a link is another run's, as a folder is, and replaced.
        is_own = not any(path.is_symlink() for path in paths)
        return (
            is_own
            and json_files.read_sealed(paths[-1]) == record
            and find_damaged_file(folder) is None
        )
    return False


def _hash_or_empty(path: Path) -> str:
    try:
        return hash_file(path)
    except (OSError, ValueError):
        return ""
