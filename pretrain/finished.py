"""A trained run, opened to be used: its recipe, its tokenizer, its backbone and the weights."""

import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from ml_collections import ConfigDict

import modules
from pretrain import verified
from pretrain.checkpoint import load_params, read_config
from pretrain.data import tokenizers
from pretrain.errors import UserError, section
from pretrain.sharding import Layout


class Run(NamedTuple):
    """What a workdir holds, without the weights."""

    workdir: pathlib.Path
    config: ConfigDict
    tokenizer: tokenizers.Tokenizer
    backbone: nn.Module

    def params(self, like: Any) -> Any:
        """All parameters, or their moving average where the run keeps one; of `like`'s shapes.

        Raises:
            UserError: there is no checkpoint, none verifies, or its leaves are others.
        """
        return load_params(like, self.workdir, average=bool(self.config.train.average))


def opened(workdir: str | pathlib.Path) -> Run:
    """The run in this folder; nothing there is changed.

    Raises:
        UserError: the folder holds no run.
    """
    workdir = pathlib.Path(workdir).absolute()
    if not (workdir / "config.json").exists():
        raise UserError(f"{workdir} holds no run: it has no config.json")
    config = ConfigDict(read_config(workdir))
    with section("model"):
        backbone = modules.build(**config.model)
    return Run(workdir, config, tokenizers.load(workdir / "tokenizer"), backbone)


def backbone_params(run: Run, layout: Layout) -> Any:
    """The backbone's parameters alone, or their average as `Run.params`, laid out over a machine.

    Raises:
        UserError: there is no checkpoint, none verifies, or its backbone has other leaves.
    """
    tokens_BL = jnp.zeros((1, 1), jnp.int32)
    shapes = jax.eval_shape(lambda: run.backbone.init(jax.random.key(0), tokens_BL, train=False))
    name = "average" if run.config.train.average else "params"
    like = layout.like({name: {"backbone": shapes["params"]}})
    folder = run.workdir / "checkpoints"
    found = verified.newest(folder, verified.flatten(like), within=f"{name}/backbone/")
    if found is None:
        raise UserError(f"there is no checkpoint in {folder} to take weights from")
    return jax.tree.unflatten(jax.tree.structure(like), found.leaves.values())[name]["backbone"]
