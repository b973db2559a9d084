"""Loads weights from another run's newest checkpoint."""

import pathlib

import jax

from pretrain.checkpoint import integrity
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import PathLike


def load_backbone(params: dict, workdir: PathLike) -> dict:
    """`params` with its backbone replaced by the one another run trained.

    Args:
        params: {"backbone": ..., everything else}; decides shapes, dtypes and layout.
        workdir: the other run's folder; only read, and that run may still be going.

    Raises:
        UserError: there is no checkpoint, none verifies, or its backbone has other leaves,
            shapes or dtypes; every such leaf is named.
    """
    found, _ = load({"params": {"backbone": params["backbone"]}}, workdir, "params/backbone/")
    return {**params, **found["params"]}


def load(like: dict, workdir: PathLike, within: str) -> tuple[dict, int]:
    """What `like` holds of a state, as the newest checkpoint of a run has it, and its step.

    Args:
        like: decides shapes, dtypes and layout, and holds all leaves `within` a folder of the
            state, as "params/", or the one of that name, and no other.
        workdir: the run's folder; only read, and that run may still be going.

    Raises:
        UserError: as `load_backbone`.
    """
    folder = pathlib.Path(workdir).resolve() / "checkpoints"
    found = integrity.newest(folder, integrity.flatten(like), within=within)
    if found is None:
        raise UserError(f"there is no checkpoint in {folder} to take weights from")
    return jax.tree.unflatten(jax.tree.structure(like), found.leaves.values()), found.step
