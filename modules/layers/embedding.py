"""The embedding of BERT and GPT: a sum over tokens, positions and segments."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.layers.dropout import Dropout
from modules.layers.norm import Norm
from modules.layers.params import (
    initializer,
    mark_inputs,
    param,
    reshard_embedding_rows,
    set_depths,
)


class Embedding(nn.Module):
    """Adds the vectors of a token, its position and its segment (Devlin et al. 2019, section 3).

    Attributes:
        V, D, L, S: tokens, width, positions, kinds of segments; S=0: no segments.
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
    normed_embedding: bool
    epsilon: float
    dropout: float
    initializer: str
    init_scale: float
    position_scale: float
    dtype: str

    def setup(self):
        V, D = self.V, self.D
        init = initializer(self.initializer, self.init_scale)
        position_init = initializer(self.initializer, self.position_scale or self.init_scale)
        self.token_VD = param(self, "token_VD", init, (V, D), decay=True, is_table=True, depth=0)
        self.position_LD = param(
            self, "position_LD", position_init, (self.L, D), decay=True, is_table=True, depth=0
        )
        if self.S:
            self.segment_SD = param(
                self, "segment_SD", init, (self.S, D), decay=True, is_table=True, depth=0
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
        x_BLD = self.token_VD[tokens_BL] + self.position_LD[positions_BL]
        if self.S:
            segments_BL = 0 if segments_BL is None else segments_BL
            # As a product, whose gradient is a product: a scatter into two rows would serialize.
            one_hot_BLS = jax.nn.one_hot(jnp.broadcast_to(segments_BL, tokens_BL.shape), self.S)
            x_BLD += jnp.einsum("BLS,SD->BLD", one_hot_BLS, self.segment_SD)
        # The tables are added up in float32; only their sum is rounded to the compute dtype.
        x_BLD = reshard_embedding_rows(x_BLD.astype(self.dtype), self.V)
        if self.normed_embedding:
            x_BLD = self.embedding_norm(x_BLD)
        x_BLD = mark_inputs(self, x_BLD)
        x_BLD = constrain_sharding(self.drop(x_BLD, train=train), "BLD")
        return x_BLD if edit is None else edit(x_BLD)
