"""The embedding of BERT and GPT: a sum over tokens, positions and segments."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.kernels.dense import dense
from modules.layers.dropout import Dropout
from modules.layers.norm import Norm
from modules.layers.params import (
    initializer,
    mark_inputs,
    param,
    reshard_embedding_rows,
    set_depths,
    zeros,
)


class Embedding(nn.Module):
    """Adds the vectors of a token, its position and its segment (Devlin et al. 2019, section 3).

    Attributes:
        V, D, L, S: tokens, width, positions, kinds of segments; S=0: no segments.
        embedding_size: width of the vectors that are added; their sum is projected to D behind the
            norm and the dropout (Lan et al. 2020, arXiv 1909.11942); 0: D, without a projection.
        normed_embedding: the sum is normed (BERT).
        epsilon: of that norm.
        dropout: of the sum.
        initializer, init_scale: as `modules.backbones.transformer.Backbone`.
        position_scale: standard deviation of the positions' vectors; 0: `init_scale`.
    """

    V: int
    D: int
    L: int
    S: int
    embedding_size: int
    normed_embedding: bool
    epsilon: float
    dropout: float
    initializer: str
    init_scale: float
    position_scale: float
    dtype: str

    def setup(self):
        # The letter of a width of its own is in the names, as everywhere.
        width, letter = (self.embedding_size, "E") if self.embedding_size else (self.D, "D")
        init = initializer(self.initializer, self.init_scale)
        position_init = initializer(self.initializer, self.position_scale or self.init_scale)
        as_table: dict[str, Any] = dict(decay=True, is_table=True, depth=0)
        self.token_VE = param(self, f"token_V{letter}", init, (self.V, width), **as_table)
        self.position_LE = param(
            self, f"position_L{letter}", position_init, (self.L, width), **as_table
        )
        if self.S:
            self.segment_SE = param(self, f"segment_S{letter}", init, (self.S, width), **as_table)
        if self.embedding_size:
            shape = (self.embedding_size, self.D)
            self.project_ED = param(
                self, "project_ED", init, shape, decay=True, depth=0, dtype=self.dtype
            )
            self.project_bias_D = param(
                self, "project_bias_D", zeros, (self.D,), decay=False, depth=0, dtype=self.dtype
            )
        if self.normed_embedding:
            self.embedding_norm = Norm(self.epsilon)
            set_depths(self, embedding_norm=0)
        self.drop = Dropout(self.dropout)

    def __call__(
        self,
        tokens_BL,
        segments_BL,
        positions_BL,
        *,
        edit: Callable[[jax.Array], jax.Array] | None = None,
        train: bool,
    ):
        """Embeds tokens: [B, L, D].

        Args:
            segments_BL: None: a row is all of segment 0.
            positions_BL: None: 0, 1, 2 ...
            edit: changes the result, see `modules.backbones.Backbone`; None: nothing.

        Raises:
            ValueError: a row is longer than there are positions.
        """
        L = tokens_BL.shape[1]
        if L > self.L:
            # JAX would clamp the index, and give the last position to all of the rest.
            raise ValueError(f"a row of {L} tokens is longer than the model's L={self.L} positions")
        positions_BL = jnp.arange(L)[None] if positions_BL is None else positions_BL
        x_BLE = self.token_VE[tokens_BL] + self.position_LE[positions_BL]
        if self.S:
            segments_BL = 0 if segments_BL is None else segments_BL
            # As a product, whose gradient is a product: a scatter into two rows would serialize.
            one_hot_BLS = jax.nn.one_hot(jnp.broadcast_to(segments_BL, tokens_BL.shape), self.S)
            x_BLE += jnp.einsum("BLS,SE->BLE", one_hot_BLS, self.segment_SE)
        # The tables are added up in float32; only their sum is rounded to the compute dtype.
        x_BLE = x_BLE.astype(self.dtype)
        if self.embedding_size:
            x_BLE = self.drop(self._norm(constrain_sharding(x_BLE, "BLE")), train=train)
            x_BLD = mark_inputs(self, dense(x_BLE, self.project_ED) + self.project_bias_D)
        else:
            x_BLD = self._norm(reshard_embedding_rows(x_BLE, self.V))
            x_BLD = self.drop(mark_inputs(self, x_BLD), train=train)
        x_BLD = constrain_sharding(x_BLD, "BLD")
        return x_BLD if edit is None else edit(x_BLD)

    def _norm(self, x_BLE):
        return self.embedding_norm(x_BLE) if self.normed_embedding else x_BLE
