"""JSON files, plain ones and ones with their own digest, so that damage is noticed."""

import hashlib
import json
import os
import pathlib
from typing import Any

from pretrain.runtime.errors import UserError
from pretrain.runtime.files import PathLike, write_file

SEAL = "seal"


def write_json(path: PathLike, value: Any, *, private: bool = False) -> None:
    """Writes `value` as indented JSON, see `write_file`."""
    write_file(path, (json.dumps(value, indent=2) + "\n").encode(), private=private)


def read_json(path: PathLike) -> Any:
    """Reads the value in a JSON file.

    Raises:
        UserError: the file is missing, unreadable, or not JSON; the message says where.
    """
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UserError(f"{os.fspath(path)} is not JSON at {where}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{os.fspath(path)} is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise UserError(f"{os.fspath(path)} is not ours: it is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{os.fspath(path)} is not ours: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {os.fspath(path)}: {error.strerror}") from error


def update_json(path: PathLike, **changes: Any) -> None:
    """Sets fields of the object in a JSON file; one that is missing is written.

    Raises:
        UserError: see `read_json`.
    """
    write_json(path, (read_json(path) if os.path.exists(path) else {}) | changes)


def write_sealed(path: PathLike, value: dict[str, Any]) -> None:
    """Writes `value` with its digest under "seal", whole or not at all."""
    write_json(path, {**value, SEAL: hash_json(value)})


def read_sealed(path: PathLike) -> dict[str, Any]:
    """Reads what `write_sealed` wrote, or an older file without a digest.

    Raises:
        UserError: the file cannot be read, is no JSON object, or its digest is another.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise UserError(f"{os.fspath(path)} is not a JSON object")
    seal = value.pop(SEAL, None)  # None in a file of an older version
    if seal is not None and seal != hash_json(value):
        raise UserError(f"{os.fspath(path)} is not what was written there")
    return value


def hash_json(value: dict[str, Any]) -> str:
    """Returns the sha256 of the value as canonical JSON: the order of keys does not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
