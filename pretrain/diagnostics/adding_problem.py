"""The adding problem of Hochreiter & Schmidhuber 1997, section 5.4: a test of long memory.

A row is T pairs: a number, and a mark that is 1 at two places, one in each half.  To be said at
the end is the sum of the two marked numbers.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from modules.layers import params
from modules.layers.rnn import Recurrent
from modules.metrics import Sum
from pretrain.diagnostics.recurrent_weights import set_recurrent_weights
from pretrain.training import optimizer, train_state


class Regression(nn.Module):
    """Guesses a number from the last state of a recurrent layer; an objective of training.

    Attributes:
        U: units.
        cell: fields of `Recurrent`, as dict(cell="lstm", forget_bias=1.0).
    """

    U: int
    cell: Mapping[str, Any]

    @nn.compact
    def __call__(self, batch, *, train: bool):
        """Returns the squared error of x_BLD's guesses of y_B."""
        del train  # nothing is dropped out
        _, state = Recurrent(self.U, **self.cell, name="recurrent")(batch["x_BLD"])
        w_U = params.param(self, "w_U", params.normal(1 / math.sqrt(self.U)), (self.U,), decay=True)
        b = params.param(self, "b", params.zeros, (), decay=False)
        error_B = state.h_BZD[:, 0] @ w_U + b - batch["y_B"]
        return {"loss": Sum(jnp.sum(error_B**2), jnp.float32(len(error_B)), train=True)}


def draw_batch(rng: jax.Array, B: int, T: int) -> dict[str, jax.Array]:
    """Draws rows of the problem: x_BLD [B, T, 2] and y_B."""
    numbers, first, second = jax.random.split(rng, 3)
    value_BL = jax.random.uniform(numbers, (B, T))
    first_B = jax.random.randint(first, (B,), 0, T // 2)
    # In the other half: the two marks never meet, so each row has exactly two.
    second_B = jax.random.randint(second, (B,), T // 2, T)
    mark_BL = jax.nn.one_hot(first_B, T) + jax.nn.one_hot(second_B, T)
    return {"x_BLD": jnp.stack([value_BL, mark_BL], -1), "y_B": (value_BL * mark_BL).sum(1)}


def train(
    cell: Mapping[str, Any],
    optim: Mapping[str, Any],
    *,
    seed: int,
    T: int,
    U: int,
    B: int,
    radius: float,
    kind: str = "orthogonal",
    every: int = 100,
) -> dict[str, np.ndarray]:
    """Trains a recurrent network on the adding problem.

    Args:
        cell: fields of `Recurrent`.
        T, U, B: positions of a row, units of the cell, rows of a batch.
        optim: a recipe's section, see `optimizer.make`; a batch is fresh in every step.
        radius, kind: of the initial recurrent weights, see `set_recurrent_weights`.
        every: steps that run as one program.

    Returns:
        "loss" (mean squared error) and "grad_norm" by step; "test_loss": of 2000 new rows.
    """
    objective = Regression(U, dict(cell))
    init_rng, weight_rng, data_rng, test_rng = jax.random.split(jax.random.key(seed), 4)
    tx, _ = optimizer.make(**optim)
    with params.recording() as record:
        state = train_state.init(objective, tx, init_rng, draw_batch(data_rng, 1, T))
    tx = optimizer.with_infos(tx, record.infos(state.params))
    drawn = set_recurrent_weights(state.params, weight_rng, kind, radius)
    step = functools.partial(train_state.train_step, objective, tx, data_rng)

    def advance(state, number):
        state, metrics = step(state, draw_batch(jax.random.fold_in(data_rng, number), B, T))
        loss = metrics.sums["loss"]
        return state, (loss.total / loss.weight, metrics.grad_norm)

    # Many short steps are one program: each alone would cost more than its arithmetic.
    advance_all = jax.jit(lambda state, numbers: jax.lax.scan(advance, state, numbers))
    state, curves = dataclasses.replace(state, params=drawn), []
    for begin in range(0, optim["steps"], every):
        numbers = jnp.arange(begin, min(begin + every, optim["steps"]))
        state, curve = advance_all(state, numbers)
        curves.append(jax.device_get(curve))
    loss, grad_norm = (np.concatenate(x) for x in zip(*curves, strict=True))
    test: Any = objective.apply(
        {"params": state.params}, draw_batch(test_rng, 2000, T), train=False
    )
    test_loss = np.asarray(test["loss"].total / test["loss"].weight)
    return {"loss": loss, "grad_norm": grad_norm, "test_loss": test_loss}
