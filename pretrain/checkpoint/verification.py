"""Reads checkpoints that may be damaged, and verifies all of what it reads.

A checkpoint is a folder `<step>` with the arrays in `state/`, as nested dictionaries named like
the train state.  `record/` holds the checksum of each array, the position in the data, the format
of the layout, and a digest of that record itself.
"""

import contextlib
import json
import logging
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

from pretrain.checkpoint import abandoned_work, checksums
from pretrain.checkpoint.errors import DamagedError, describe_error
from pretrain.checkpoint.named_leaves import Leaves, flatten, nest
from pretrain.checkpoint.paths import list_steps
from pretrain.runtime import json_files
from pretrain.runtime.errors import UserError
from pretrain.runtime.format_version import FORMAT, check_format
from pretrain.runtime.json_files import read_json

ARRAYS = (jax.Array, np.ndarray)
Folders = str | Sequence[str]


class Restored(NamedTuple):
    """A checkpoint that verified.

    Attributes:
        leaves: its arrays by name.
        position: the position in the data.
        step: its number.
        refused: the newer checkpoints that did not verify, and why: {step: reason}.
    """

    leaves: Leaves
    position: dict
    step: int
    refused: dict[int, str]


def make_record(leaves: Mapping[str, dict], position: Mapping[str, Any]) -> dict:
    """Makes the record of a checkpoint.

    Args:
        leaves: the rows of `checksums.describe` by name.
        position: JSON; the position in the data.
    """
    return add_digest({"format": FORMAT, "leaves": leaves, "position": position})


def add_digest(record: Mapping[str, Any]) -> dict:
    plain = json.loads(json.dumps(record))  # tuples become lists, as they will when it is read
    return {**plain, "digest": json_files.hash_json(plain)}


def load_newest(folder: pathlib.Path, like: Leaves, within: Folders = "") -> Restored | None:
    """Loads the newest checkpoint in `folder` that verifies, and warns of every newer one.

    Args:
        folder: holds the checkpoints; it is only read.
        like: a jax.ShapeDtypeStruct with the wanted sharding for each leaf.
        within: a folder of the state, "params/", or the name of one leaf, or several of these;
            `like` has just the leaves in it.  "" is the whole state.

    Returns:
        The checkpoint; None if there is none at all.

    Raises:
        UserError: the checkpoint is of another format, or does not fit `like`, or there are
            some and none verifies.
    """
    refused: dict[int, str] = {}
    for step in list_steps(folder):
        try:
            leaves, position = load(folder / str(step), like, within)
            return Restored(leaves, position, step, refused)
        except DamagedError as error:
            # Nothing is moved yet: this may be another run's folder.
            refused[step] = str(error)
            logging.warning("checkpoint %s is refused: %s", folder / str(step), error)
    if refused:
        reasons = "".join(f"\n  step {step}: {why}" for step, why in refused.items())
        raise UserError(f"no checkpoint in {folder} can be trusted:{reasons}")
    return None


def load(folder: pathlib.Path, like: Leaves, within: Folders) -> tuple[Leaves, dict]:
    """Loads and verifies one checkpoint.

    Args:
        folder: the checkpoint.
        like, within: see `load_newest`.

    Returns:
        (leaves by name, position).

    Raises:
        DamagedError: it does not verify, in this process or another.
        UserError: it is of another format, or does not fit `like`.
    """
    leaves, record = fail_together(lambda: _read(folder, like, within))
    table, _ = checksums.describe(leaves)
    # Orbax notices truncated files and broken headers, but no flipped bit.
    if wrong := [name for name in like if table[name] != record["leaves"][name]]:
        raise DamagedError(f"not the values that were saved: {', '.join(wrong)}")
    return leaves, record["position"]


def fail_together(read: Callable[[], tuple[Leaves, dict]]) -> tuple[Leaves, dict]:
    """Returns `read()`; raises in every process if it fails in one."""
    error: Exception | None = None  # raised below, after all processes have been asked
    try:
        result = read()
    except UserError:  # of the record, which all processes read alike
        raise
    except Exception as cause:  # a damaged file can make any layer below raise anything
        error = cause
    # Otherwise the others would wait for the one that failed.
    if not np.all(multihost_utils.process_allgather(np.array(error is None))):
        raise DamagedError(describe_error(error)) from error
    return result


def _read(folder: pathlib.Path, like: Leaves, within: Folders) -> tuple[Leaves, dict]:
    reject_symlinks(folder)  # before any file is opened
    record = read_record(folder)
    check_layout(folder, {k: v for k, v in record["leaves"].items() if is_within(k, within)}, like)
    abandoned_work.silence_tracebacks()
    target = nest(like)
    args = ocp.args.PyTreeRestore(
        item=target,
        restore_args=ocp.checkpoint_utils.construct_restore_args(target),
        partial_restore=True,  # `like` may be a part of the state, as a backbone alone
    )
    # The handler alone: the manager would open a folder of another run for writing.
    with contextlib.closing(ocp.PyTreeCheckpointHandler()) as handler:
        leaves = flatten(handler.restore(folder / "state", args=args))
    if absent := [name for name in like if not isinstance(leaves.get(name), ARRAYS)]:
        raise DamagedError(f"not in state/_METADATA: {', '.join(absent)}")
    return {name: leaves[name] for name in like}, record


def is_within(name: str, folders: Folders) -> bool:
    return any(
        not folder or name == folder or (folder.endswith("/") and name.startswith(folder))
        for folder in ([folders] if isinstance(folders, str) else folders)
    )


def reject_symlinks(folder: pathlib.Path) -> None:
    """Raises DamagedError unless all below a checkpoint are plain files and folders."""
    # A link in somebody else's checkpoint could read any file of this machine into the weights.
    for path in [folder, *folder.rglob("*")]:
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise DamagedError(f"{path.relative_to(folder.parent)} is a link or no regular file")


def read_record(folder: pathlib.Path) -> dict:
    """Reads and verifies the record of a checkpoint.

    Raises:
        DamagedError: it is missing or not what was written.
        UserError: it is of another format.
    """
    try:
        record = read_json(folder / "record" / "metadata")
    except UserError as error:
        raise DamagedError(str(error)) from error
    if not isinstance(record, dict):
        raise DamagedError(f"{folder / 'record' / 'metadata'} holds no record")
    # The record has a digest of its own: no array's checksum covers the position in the data.
    digest = record.pop("digest", None)
    if add_digest(record)["digest"] != digest:
        raise DamagedError("its record of what was saved has been altered")
    check_format(record, folder)
    return record


def check_layout(folder: pathlib.Path, saved: Leaves, like: Leaves) -> None:
    """Raises UserError that names every leaf whose presence, shape or dtype differs."""
    present = {name: checksums.describe_layout(leaf) for name, leaf in like.items()}
    wrong = []  # all of them at once, so that a recipe is mended in one go
    for name in dict.fromkeys([*saved, *present]):
        theirs, ours = (format_layout(layouts.get(name)) for layouts in (saved, present))
        if theirs != ours:
            wrong.append(f"\n  {name}: checkpoint {theirs}, this recipe {ours}")
    if wrong:
        raise UserError(f"{folder} does not fit this recipe:{''.join(wrong)}")


def format_layout(layout: dict | None) -> str:
    return f"{tuple(layout['shape'])} {layout['dtype']}" if layout else "(absent)"
