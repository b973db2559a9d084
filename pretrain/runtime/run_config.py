"""Reads, writes and compares the recipe that a run keeps in config.json."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from flax import traverse_util

from pretrain.runtime.addresses import without_credentials
from pretrain.runtime.files import PathLike, read_json, write_json


def write_config(workdir: PathLike, config: Mapping[str, Any]) -> None:
    """Keeps the recipe of a run beside its weights, in `config.json`, without credentials.

    Others may read the file, to go on from the run, unless the recipe held credentials.
    """
    public = _redact(config)
    has_secrets = json.dumps(public) != json.dumps(config)
    write_json(pathlib.Path(workdir) / "config.json", public, private=has_secrets)


def read_config(workdir: PathLike) -> dict:
    """The recipe of the run in `workdir`; UserError if it is missing or broken."""
    return read_json(pathlib.Path(workdir) / "config.json")


def differences(saved: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """Where two nested dictionaries differ, a line each: "optim.lr: 0.0004 -> 0.001".

    Credentials in their addresses are neither compared nor told.
    """
    old, new = (dotted(_redact(json.loads(json.dumps(each)))) for each in (saved, present))
    names = list(dict.fromkeys([*old, *new]))
    return [
        f"{name}: {old.get(name, '(absent)')} -> {new.get(name, '(absent)')}"
        for name in names
        if name not in old or name not in new or old[name] != new[name]
    ]


def _redact(tree: Any) -> Any:
    """Removes the credentials from every address in nested dictionaries and lists."""
    if isinstance(tree, Mapping):
        return {name: _redact(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_redact(value) for value in tree]
    return without_credentials(tree) if isinstance(tree, str) else tree


def dotted(tree: dict) -> dict:
    return traverse_util.flatten_dict(tree, sep=".")
