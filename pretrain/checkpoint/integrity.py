"""Reading checkpoints that may be damaged: nothing is believed that does not add up.

A checkpoint is a folder `<step>` with the arrays in `state/`, as nested dictionaries named like
the train state, and in `record/` the checksum of each, the position in the data, and a digest
of that record itself.
"""

import contextlib
import functools
import inspect
import json
import logging
import os
import pathlib
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from flax import traverse_util
from jax.experimental import multihost_utils

from pretrain.checkpoint import checksums
from pretrain.runtime import sealed_json
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import read_json

Leaves = dict[str, Any]  # "params/backbone/token_VD": an array, or the description of one
ARRAYS = (jax.Array, np.ndarray)


class DamagedError(Exception):
    """A checkpoint is not what was saved; the message names the file or the leaf."""


class Found(NamedTuple):
    """A checkpoint that verified, and why each newer one did not: {step: reason}."""

    leaves: Leaves
    position: dict
    step: int
    refused: dict[int, str]


def flatten(tree: Any) -> Leaves:
    """{"params/backbone/token_VD": leaf}, in the order of `jax.tree.leaves`."""
    named = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in named}


def nest(leaves: Leaves) -> dict:
    """{"params": {"backbone": {"token_VD": leaf}}}: what Orbax is given and asked for."""
    return traverse_util.unflatten_dict(leaves, sep="/")


def seal(record: Mapping[str, Any]) -> dict:
    """`record` and the sha256 of its canonical JSON."""
    plain = json.loads(json.dumps(record))
    return {**plain, "digest": sealed_json.digest(plain)}


def newest(folder: pathlib.Path, like: Leaves, within: str = "") -> Found | None:
    """The newest checkpoint in `folder` that verifies; every newer one is warned of.

    Args:
        folder: holds the checkpoints; it is only read.
        like: for each leaf a jax.ShapeDtypeStruct with the sharding it is to have.
        within: look only at leaves in this folder, "params/", or at the one of this name; `like`
            has just these.

    Returns:
        None if there is no checkpoint at all.

    Raises:
        UserError: the checkpoint does not fit `like`, or there are some and none verifies.
    """
    refused: dict[int, str] = {}
    for step in steps(folder):
        try:
            leaves, position = read(folder / str(step), like, within)
            return Found(leaves, position, step, refused)
        except DamagedError as error:
            refused[step] = str(error)
            logging.warning("checkpoint %s is refused: %s", folder / str(step), error)
    if refused:
        reasons = "".join(f"\n  step {step}: {why}" for step, why in refused.items())
        raise UserError(f"no checkpoint in {folder} can be trusted:{reasons}")
    return None


def steps(folder: pathlib.Path) -> list[int]:
    """Newest first; unfinished saves have names that are not numbers."""
    names = os.listdir(folder) if folder.is_dir() else []
    numbers = (int(name) for name in names if re.fullmatch("0|[1-9][0-9]*", name))
    return sorted(numbers, reverse=True)


def read(folder: pathlib.Path, like: Leaves, within: str) -> tuple[Leaves, dict]:
    """The leaves of one checkpoint, laid out as `like` and verified, and its position."""
    leaves, record = together(lambda: _load(folder, like, within))
    table, _ = checksums.describe(leaves)
    if wrong := [name for name in like if table[name] != record["leaves"][name]]:
        raise DamagedError(f"not the values that were saved: {', '.join(wrong)}")
    return leaves, record["position"]


def together(load: Callable[[], tuple[Leaves, dict]]) -> tuple[Leaves, dict]:
    """`load()`, failing in every process if it fails in one: the others would wait for it."""
    error: Exception | None = None
    try:
        loaded = load()
    except UserError:
        raise
    except Exception as cause:  # a damaged file can make any layer below raise anything
        error = cause
    if not np.all(multihost_utils.process_allgather(np.array(error is None))):
        raise DamagedError(reason(error)) from error
    return loaded


def reason(error: BaseException | None) -> str:
    """What went wrong, in a line."""
    if error is None:
        return "another process could not read its part"
    if isinstance(error, DamagedError):
        return str(error)
    while error.__cause__:  # Orbax wraps what the storage layer said
        error = error.__cause__
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 500 else f"{text[:200]} ... {text[-300:]}"


def _load(folder: pathlib.Path, like: Leaves, within: str) -> tuple[Leaves, dict]:
    refuse_links(folder)
    record = read_record(folder)
    compare(folder, {k: v for k, v in record["leaves"].items() if is_within(k, within)}, like)
    _hush()
    target = nest(like)
    args = ocp.args.PyTreeRestore(
        item=target,
        restore_args=ocp.checkpoint_utils.construct_restore_args(target),
        partial_restore=True,
    )
    with contextlib.closing(ocp.PyTreeCheckpointHandler()) as handler:
        found = flatten(handler.restore(folder / "state", args=args))
    if absent := [name for name in like if not isinstance(found.get(name), ARRAYS)]:
        raise DamagedError(f"not in state/_METADATA: {', '.join(absent)}")
    return {name: found[name] for name in like}, record


def is_within(name: str, folder: str) -> bool:
    """Whether a leaf is in this folder of the state, "params/", or is it; "": the whole state."""
    return not folder or name == folder or (folder.endswith("/") and name.startswith(folder))


@functools.cache
def _hush() -> None:
    """When a leaf cannot be read, the reads still under way report to an event loop that is gone.

    The reader of our own message, which names the damage, is spared their tracebacks.
    """
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    report = sys.unraisablehook

    def hook(unraisable) -> None:
        abandoned = inspect.iscoroutine(unraisable.object)
        if not abandoned and str(unraisable.exc_value) != "Event loop is closed":
            report(unraisable)

    sys.unraisablehook = hook


def refuse_links(folder: pathlib.Path) -> None:
    """A link inside a foreign checkpoint could read any file of this machine into the weights."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise DamagedError(f"{path.relative_to(folder.parent)} is a link or no regular file")


def read_record(folder: pathlib.Path) -> dict:
    """What was written beside the arrays, if it is what was written."""
    try:
        record = read_json(folder / "record" / "metadata")
    except UserError as error:
        raise DamagedError(str(error)) from error
    if not isinstance(record, dict):
        raise DamagedError(f"{folder / 'record' / 'metadata'} holds no record")
    digest = record.pop("digest", None)
    if seal(record)["digest"] != digest:
        raise DamagedError("its record of what was saved has been altered")
    return record


def compare(folder: pathlib.Path, saved: Leaves, like: Leaves) -> None:
    """UserError naming every leaf whose presence, shape or dtype is not that of `like`."""
    present = {name: checksums.layout(leaf) for name, leaf in like.items()}
    wrong = [
        f"\n  {name}: checkpoint {spoken(saved.get(name))}, this recipe {spoken(present.get(name))}"
        for name in dict.fromkeys([*saved, *present])
        if spoken(saved.get(name)) != spoken(present.get(name))
    ]
    if wrong:
        raise UserError(f"{folder} does not fit this recipe:{''.join(wrong)}")


def spoken(layout: dict | None) -> str:
    return f"{tuple(layout['shape'])} {layout['dtype']}" if layout else "(absent)"
