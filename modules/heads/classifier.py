"""Classifies whole rows: pools their states, summarizes them, and projects to C numbers."""

from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params
from modules.layers.batch_norm import BatchNorm
from modules.layers.dropout import Dropout
from modules.layers.pooling import Pool, keep_last

ACTIVATIONS = {"tanh": jnp.tanh, **{x: params.ACTIVATIONS[x] for x in ("relu", "gelu_erf")}}
SUMMARIES = ("none", *ACTIVATIONS, "pooler", "batch_norm")


class Classifier(nn.Module):
    """Maps a row's states to C numbers.

    Attributes:
        C: numbers of a row: classes, or 1.
        pool: a kind of `modules.layers.pooling.Pool`.
        summary: before the dense layer: "pooler", the backbone's own layer (BERT); "tanh", a
            layer of the head's (XLNet), or "relu" (DistilBERT), "gelu_erf" (ELECTRA);
            "batch_norm", one of U rectified units between two batch norms (ULMFiT); "none".
        dropout: before the dense layer.
        bias: of the dense layer; False: it has none, as transformers' classes of GPT.
        pooler: the backbone, whose `pool` is called; its parameters stay its own.
        scale: standard deviation of the initial weights.
        pool_last: states from a row's end that are pooled, 0: all (ULMFiT: 1400).
        U, hidden_dropout: units of "batch_norm", and dropout before them.
    """

    C: int
    pool: str = "first"
    summary: str = "none"
    dropout: float = 0.1
    pooler: Any = None
    scale: float = 0.02
    pool_last: int = 0
    U: int = 50
    hidden_dropout: float = 0.4
    bias: bool = True

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "summary", SUMMARIES)

    @nn.compact
    def __call__(self, h_BLD, valid_BL, options: int = 1, *, weight_B=None, train: bool):
        """Computes logits from [B * O, L, D] and [B * O, L]: [B, C] float32.

        Args:
            options: O, the rows of an example, whose vectors are added before the dense layer.
            weight_B: 0 of examples that fill up a batch; None: there are none.
        """
        pooled_BD = Pool(self.pool)(h_BLD, keep_last(valid_BL, self.pool_last))
        init = params.normal(self.scale)
        if self.summary == "pooler":
            pooled_BD = self.pooler.pool(pooled_BD)
        elif self.summary in ACTIVATIONS:
            dense_BD = nn.Dense(pooled_BD.shape[-1], kernel_init=init)(pooled_BD)
            pooled_BD = ACTIVATIONS[self.summary](dense_BD)
        elif self.summary == "batch_norm":
            weights_B = None if weight_B is None else jnp.repeat(weight_B, options)
            pooled_BD = self._read_hidden(pooled_BD, weights_B, train=train)
        # Rows of one example are neighbours, as GPT-1's two orders of a pair.
        pooled_BD = pooled_BD.reshape(-1, options, pooled_BD.shape[-1]).sum(1)
        pooled_BD = Dropout(self.dropout)(pooled_BD, train=train)
        w_DC = params.param(self, "w_DC", init, (pooled_BD.shape[-1], self.C), decay=True)
        # Logits and their loss are float32, whatever the backbone computes in.
        logits_BC = pooled_BD.astype(jnp.float32) @ w_DC
        if not self.bias:
            return logits_BC
        return logits_BC + params.param(self, "bias_C", params.zeros, (self.C,), decay=False)

    def _read_hidden(self, x_BD, weight_B, *, train: bool):
        """Computes the normalised hidden units of a row, [B, U] float32."""
        # The released head's order: each norm before its dropout and dense layer, the rectifier
        # between.
        x_BD = BatchNorm(name="input_norm")(x_BD, weight_B, train=train)
        x_BD = Dropout(self.hidden_dropout)(x_BD, train=train)
        hidden_BU = nn.relu(nn.Dense(self.U, kernel_init=params.normal(self.scale))(x_BD))
        return BatchNorm(name="hidden_norm")(hidden_BU, weight_B, train=train)
