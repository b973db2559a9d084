"""Classifies whole rows: pools their states, summarizes them, and projects to C numbers."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.pooling import Pool

SUMMARIES = ("none", "tanh", "pooler")


class Classifier(nn.Module):
    """Maps a row's states to C numbers.

    Attributes:
        C: numbers of a row: classes, or 1.
        pool: a kind of `modules.layers.pooling.Pool`.
        summary: before the dense layer: "pooler", the backbone's own layer (BERT); "tanh", a
            layer of the head's (XLNet); "none".
        dropout: before the dense layer.
        pooler: the backbone, whose `pool` is called; its parameters stay its own.
        scale: standard deviation of the initial weights.
    """

    C: int
    pool: str = "first"
    summary: str = "none"
    dropout: float = 0.1
    pooler: Any = None
    scale: float = 0.02

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "summary", SUMMARIES)

    @nn.compact
    def __call__(self, h_BLD, valid_BL, options: int = 1, *, train: bool):
        """Computes logits from [B * O, L, D] and [B * O, L]: [B, C] float32.

        Args:
            options: O, the rows of an example, whose vectors are added before the dense layer.
        """
        pooled_BD = Pool(self.pool)(h_BLD, valid_BL)
        init = params.normal(self.scale)
        if self.summary == "pooler":
            pooled_BD = self.pooler.pool(pooled_BD)
        elif self.summary == "tanh":
            pooled_BD = jnp.tanh(nn.Dense(pooled_BD.shape[-1], kernel_init=init)(pooled_BD))
        # Rows of one example are neighbours, as GPT-1's two orders of a pair.
        pooled_BD = pooled_BD.reshape(-1, options, pooled_BD.shape[-1]).sum(1)
        pooled_BD = Dropout(self.dropout)(pooled_BD, train=train)
        w_DC = params.param(self, "w_DC", init, (pooled_BD.shape[-1], self.C), decay=True)
        bias_C = params.param(self, "bias_C", params.zeros, (self.C,), decay=False)
        # Logits and their loss are float32, whatever the backbone computes in.
        return pooled_BD.astype(jnp.float32) @ w_DC + bias_C
