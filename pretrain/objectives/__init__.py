"""Objectives: batch in, {metric: (total, weight)} out; the one called "loss" is trained.

An objective is a Linen module whose first field is a backbone, so heads are parameters and
corruption draws from `make_rng("corrupt")`.  What must survive between batches (XLNet's memory,
LSTM states) is a collection other than "params": `State.carry` keeps, shards and saves it.
Every array with a B in its name has one entry per row of the batch there.

    __call__(batch, *, train) -> sums     `batch` holds the arrays of a `pretrain.data` layout: see
                                          there; `tokens_BL`, and `weight_B`, 0 for filler rows
    flops(B, L) -> float                  floating-point operations of one training step

A metric whose name ends in _V is a histogram over the vocabulary of what was predicted; it is
printed as the loss that the best constant guess would have.  Adding an objective is one file
here: `class Objective(nn.Module)`, named by `config.objective.name`.
"""

import importlib
from typing import Any


def build(name: str, backbone, **fields: Any):
    """`build("plm", backbone, reuse=64)` is `plm.Objective(backbone, reuse=64)`."""
    return importlib.import_module(f"pretrain.objectives.{name}").Objective(backbone, **fields)
