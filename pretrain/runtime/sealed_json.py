"""Reads and writes JSON files that hold their own digest, so that damage is noticed."""

import hashlib
import json
from pathlib import Path
from typing import Any

from pretrain.runtime.errors import UserError
from pretrain.runtime.files import read_json, write_json

SEAL = "seal"


def write(path: Path, value: dict[str, Any]) -> None:
    """Writes `value` with its digest under "seal", whole or not at all."""
    write_json(path, {**value, SEAL: digest(value)})


def read(path: Path) -> dict[str, Any]:
    """Reads what `write` wrote, or an older file without a digest.

    Raises:
        UserError: the file cannot be read, is no JSON object, or its digest is another.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object")
    seal = value.pop(SEAL, None)  # None in a file of an older version
    if seal is not None and seal != digest(value):
        raise UserError(f"{path} is not what was written there")
    return value


def digest(value: dict[str, Any]) -> str:
    """Returns the sha256 of the value as canonical JSON: the order of keys does not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
