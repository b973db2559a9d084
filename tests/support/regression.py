"""A regression with a memory, trained on random rows: a run of it compiles in a moment."""

import dataclasses
import functools
import pathlib
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from modules.layers.batch_norm import BatchNorm
from modules.metrics import Sum
from pretrain.data.batches import describe_arrays
from pretrain.distributed.sharding import make_mesh
from pretrain.training import loop

B, D, M = 8, 3, 2
STEPS = 6


class Objective(nn.Module):
    """A weighted regression on the row and on what the row said before; no randomness."""

    @nn.compact
    def __call__(self, batch, *, train: bool):
        w_D = self.param("w_D", nn.initializers.normal(1.0), (D,))
        shape = (2, B if self.is_initializing() else batch["x_BD"].shape[0], M, D)
        memory = self.variable("memory", "h_NBMD", jnp.zeros, shape)
        guess_B = (batch["x_BD"] + memory.value.sum((0, 2))) @ w_D
        if not self.is_initializing():
            new = jnp.stack([batch["x_BD"], -(batch["x_BD"] ** 2)])[:, :, None]
            memory.value = jnp.concatenate([memory.value, new], axis=2)[:, :, -M:]
        total = (batch["weight_B"] * (guess_B - batch["y_B"]) ** 2).sum()
        return {"loss": Sum(total, batch["weight_B"].sum(), train=True)}

    def flops(self, B: int, L: int) -> float:
        return 1.0


class NormedObjective(nn.Module):
    """A weighted regression on rows that are normalised by their batch."""

    @nn.compact
    def __call__(self, batch, *, train: bool):
        w_D = self.param("w_D", nn.initializers.normal(1.0), (D,))
        x_BD = BatchNorm(name="norm")(batch["x_BD"], batch["weight_B"], train=train)
        total = (batch["weight_B"] * (x_BD @ w_D - batch["y_B"]) ** 2).sum()
        return {"loss": Sum(total, batch["weight_B"].sum(), train=True)}

    def flops(self, B: int, L: int) -> float:
        return 1.0


def draw(seed: int) -> dict[str, np.ndarray]:
    """Draws a batch, of whose rows some have no weight."""
    rng = np.random.default_rng(seed)
    weight_B = np.array([1, 0, 3, 0.5, 0, 0, 2, 1], np.float32)
    x_BD, y_B = rng.normal(0, 1, (B, D)), rng.normal(0, 1, B)
    return {"x_BD": x_BD.astype("f"), "y_B": y_B.astype("f"), "weight_B": weight_B}


@dataclasses.dataclass(eq=False)  # its hash is its identity
class Layout:
    """Batches by their number."""

    shuffle: bool = True
    steps_per_epoch: int = 4
    B: int = B
    L: int = 1

    def shapes(self):
        return describe_arrays("x_BD", (B, D), np.float32) | describe_arrays(
            "y_B weight_B", (B,), np.float32
        )

    def batch(self, step: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
        return {name: x[rows] for name, x in draw(step).items()}

    def fingerprint(self) -> dict[str, Any]:
        return {"rows": B}


def get_config(**changes: Any) -> ConfigDict:
    """Returns a recipe; `train__eval_every=0` changes a value of it."""
    config = ConfigDict(dict(seed=0, mesh={}, profile=""))
    config.optim = dict(lr=0.01, steps=STEPS, warmup=2)
    config.train = dict(log_every=1, eval_every=3, eval_batches=2, save_every=2, best="")
    names = {name.replace("__", "."): value for name, value in changes.items()}
    config.update_from_flattened_dict(names)
    return config


def run(workdir: pathlib.Path, *hooks, **changes: Any) -> loop.Result:
    """Trains on one device."""
    evals = {"held_out": Layout(shuffle=False)}
    one_device = functools.partial(make_mesh, devices=jax.devices()[:1])
    with mock.patch.object(loop, "make_mesh", one_device):
        config = get_config(**changes)
        return loop.run(config, workdir, Objective(), Layout(), evals, extra_hooks=hooks)
