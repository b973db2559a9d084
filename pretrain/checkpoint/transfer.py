"""Loads weights from another run's newest checkpoint."""

import pathlib

import jax

from pretrain.checkpoint import named_leaves, verification
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import PathLike


def load_backbone(params: dict, workdir: PathLike) -> dict:
    """Replaces the backbone of `params` by that of another run's newest checkpoint.

    Args:
        params: {"backbone": ..., everything else}; decides shapes, dtypes and layout.
        workdir: the other run's folder; only read, and that run may still be going.

    Returns:
        `params` with the other backbone; everything else is the same object.

    Raises:
        UserError: there is no checkpoint, none verifies, or its backbone has other leaves,
            shapes or dtypes; every such leaf is named.
    """
    state, _ = load({"params": {"backbone": params["backbone"]}}, workdir, "params/backbone/")
    return {**params, **state["params"]}


def load(like: dict, workdir: PathLike, within: str) -> tuple[dict, int]:
    """Loads part of the train state from a run's newest checkpoint.

    Args:
        like: decides shapes, dtypes and layout, and holds all leaves `within` a folder of the
            state, as "params/", or the one of that name, and no other.
        workdir: the run's folder; only read, and that run may still be going.
        within: the folder or name, see `verification.load_newest`.

    Returns:
        (a tree like `like`, the step of the checkpoint).

    Raises:
        UserError: as `load_backbone`.
    """
    folder = pathlib.Path(workdir).resolve() / "checkpoints"
    # Not by `Checkpoints`, which would delete the other run's unfinished saves.
    restored = verification.load_newest(folder, named_leaves.flatten(like), within=within)
    if restored is None:
        raise UserError(f"there is no checkpoint in {folder} to take weights from")
    return jax.tree.unflatten(jax.tree.structure(like), restored.leaves.values()), restored.step
