"""Loads weights from another run's newest checkpoint, and merges them into new ones."""

import pathlib
from collections.abc import Callable, Collection, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from pretrain.checkpoint import named_leaves, verification
from pretrain.checkpoint.errors import DamagedError
from pretrain.checkpoint.named_leaves import Leaves
from pretrain.checkpoint.paths import list_steps
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import PathLike


def load(like: dict, workdir: PathLike, within: verification.Folders) -> tuple[dict, int]:
    """Loads part of the train state from a run's newest checkpoint.

    Args:
        like: decides shapes, dtypes and layout, and holds all leaves `within` a folder of the
            state, as "params/", or the one of that name, or several of these, and no other.
        workdir: the run's folder; only read, and that run may still be going.
        within: the folders or names, see `verification.load_newest`.

    Returns:
        (a tree like `like`, the step of the checkpoint).

    Raises:
        UserError: there is no checkpoint, none verifies, or it has other leaves, shapes or dtypes;
            every such leaf is named.
    """
    folder = pathlib.Path(workdir).resolve() / "checkpoints"
    # Not by `Checkpoints`, which would delete the other run's unfinished saves.
    restored = verification.load_newest(folder, named_leaves.flatten(like), within=within)
    if restored is None:
        raise UserError(f"there is no checkpoint in {folder} to take weights from")
    return jax.tree.unflatten(jax.tree.structure(like), restored.leaves.values()), restored.step


def describe_leaves(workdir: PathLike, within: str) -> Leaves:
    """Returns shapes and dtypes of all leaves in a folder of a run's train state, by name.

    Raises:
        UserError: there is no checkpoint, or it is of another format.
    """
    folder = pathlib.Path(workdir).resolve() / "checkpoints"
    for step in list_steps(folder):
        try:
            rows = verification.read_record(folder / str(step))["leaves"]
        except DamagedError:  # `load` says so, and falls back to the one before, too
            continue
        return {
            name: jax.ShapeDtypeStruct(row["shape"], jnp.dtype(row["dtype"]))
            for name, row in rows.items()
            if verification.is_within(name, within)
        }
    raise UserError(f"there is no checkpoint in {folder} to take weights from")


def keep_new_rows(name: str, old: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, str]:
    """Grows a parameter by the rows of the new one that are beyond its own.

    Returns:
        (the parameter, what became of it).

    Raises:
        UserError: they differ in more than the number of rows, or the new one has fewer.
    """
    rows = len(old)
    if old.shape[1:] != new.shape[1:] or rows > len(new):
        raise UserError(f"{name}: {new.shape} here, {old.shape} in the pretrained run")
    return np.concatenate([old, new[rows:]]), f"restored, and {len(new) - rows} new rows"


def merge(
    new: Leaves,
    old: Mapping[str, jax.Array],
    grow: Callable[[str, np.ndarray, np.ndarray], tuple[np.ndarray, str]] = keep_new_rows,
    moved: Collection[str] = (),
) -> tuple[Leaves, list[str]]:
    """Puts parameters of a run in the place of new ones with the same names.

    Args:
        new: parameters by name; they decide the layout.
        grow: (name, old, new) -> the parameter and what became of it, where shapes differ.
        moved: names of those whose rows have other numbers: `grow` decides, whatever the shapes.

    Returns:
        (parameters by name, a line for each: restored, new or ignored).
    """
    merged, table = {}, []
    for name, x in new.items():
        if name not in old:
            merged[name], outcome = x, "new"
        elif old[name].shape == x.shape and name not in moved:
            merged[name], outcome = jax.device_put(old[name], x.sharding), "restored"
        else:
            # Through the host: the two are sharded differently, as rows of another number are.
            grown, outcome = grow(name, np.asarray(old[name]), np.asarray(x))
            merged[name] = jax.device_put(grown.astype(x.dtype), x.sharding)
        table.append(f"{name} {list(x.shape)}: {outcome}")
    table += [f"{name}: ignored, has no place here" for name in old.keys() - new.keys()]
    return merged, table
