"""Verifies the arrays of a prepared corpus when it is opened; damage later waits for the next time.

below 64 MiB    its sha256 is computed every time: any change is noticed
larger          its sha256 is computed the first time, whenever its size or time of change is
                not what it was then, and if asked for; otherwise 32 of its blocks of 1 MiB,
                drawn anew every time, are compared with their checksums
"""

import contextlib
import hashlib
import random
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pretrain.data.corpus.input_hashes import stamp_file
from pretrain.runtime import json_files
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import beside
from pretrain.runtime.progress import say

LARGE, BLOCK, DRAWN = 64 << 20, 1 << 20, 32  # bytes, bytes, blocks
SLOW = 1 << 30  # bytes that take seconds to read


def verify_arrays(
    folder: Path, arrays: Mapping[str, Mapping[str, Any]], whole: bool = False
) -> None:
    """Compares the arrays with their digests in the manifest.

    Args:
        folder: the corpus.
        arrays: the manifest's entries by name.
        whole: read all of every file, however large.

    Raises:
        UserError: a file is damaged, or a token has no place in the vocabulary.
    """
    # The checksums of larger files.  Without them, or where they are damaged or cannot be written,
    # these are read whole.
    record = beside(folder, ".verified")
    before = _read_record(record)
    now = {name: _verify_array(folder, name, arrays, before.get(name), whole) for name in arrays}
    large = {name: entry for name, entry in now.items() if entry}
    if large != before:
        with contextlib.suppress(OSError):  # a cache that is only to be read
            json_files.write_sealed(record, large)


def damage_error(folder: Path, how: str) -> UserError:
    """Makes the error of a damaged corpus, which says what to do."""
    return UserError(
        f"{folder} is damaged: {how}; remove this folder and the next run makes it again"
    )


def _read_record(record: Path) -> dict[str, Any]:
    try:
        return json_files.read_sealed(record) if record.exists() else {}
    except UserError:
        return {}


def _verify_array(
    folder: Path, name: str, arrays: Mapping[str, Mapping[str, Any]], before: Any, whole: bool
) -> dict[str, Any] | None:
    """Checks a file; returns what the record keeps of a large one, None for a small one."""
    path, sha256 = folder / f"{name}.bin", arrays[name]["sha256"]
    size, time = stamp_file(path)
    key = {"size": size, "time": time, "sha256": sha256}
    is_unchanged = isinstance(before, dict) and key.items() <= before.items()
    # Damage that changes neither size nor time is noticed once a block that holds it is drawn.
    if size >= LARGE and is_unchanged and not whole:
        if not _sample_matches(path, before["blocks"]):
            raise damage_error(folder, f"{path.name} is not what was written")
        return before
    if size >= SLOW:
        say(f"verifying {path} ({size / 1e9:.1f} GB)")
    digest, blocks, highest = _read_checksums(path, arrays[name]["dtype"])
    if digest != sha256:
        raise damage_error(folder, f"{path.name} is not what was written: its sha256 is another")
    # A tokenizer of fewer pieces than the ids need would read beyond an embedding's table.
    if name == "tokens" and highest >= (V := arrays["counts"]["size"]):
        raise damage_error(
            folder, f"{path.name} holds the id {highest}, but the vocabulary ends at {V}"
        )
    return {**key, "blocks": blocks} if size >= LARGE else None


def _read_checksums(path: Path, dtype: str) -> tuple[str, str, int]:
    """Returns the file's sha256, the CRC-32 of each block in 8 digits, and its maximum."""
    sha256, checksums, highest = hashlib.sha256(), list[str](), 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            sha256.update(block)
            checksums.append(f"{zlib.crc32(block):08x}")
            highest = max(highest, int(np.frombuffer(block, dtype).max()))
    return sha256.hexdigest(), "".join(checksums), highest


def _sample_matches(path: Path, checksums: str) -> bool:
    count = len(checksums) // 8
    with path.open("rb") as file:
        # Other blocks at every start, so that repeated starts see all of the file.
        for number in sorted(random.sample(range(count), min(DRAWN, count))):
            file.seek(number * BLOCK)
            if f"{zlib.crc32(file.read(BLOCK)):08x}" != checksums[8 * number : 8 * number + 8]:
                return False
    return True
