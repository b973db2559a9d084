"""Classifies pairs of texts by the vector of each, as natural language inference is learned."""

from collections.abc import Callable

import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params
from modules.layers.dropout import Dropout

FEATURES: dict[str, Callable] = {
    # Reimers & Gurevych 2019 (arXiv 1908.10084, equation 1), the best of their table 6.
    "difference": lambda u_BD, v_BD: (u_BD, v_BD, jnp.abs(u_BD - v_BD)),
    # ConSERT's supervised runs (`--concatenation_sent_max_square`).
    "max_square": lambda u_BD, v_BD: (
        u_BD,
        v_BD,
        jnp.abs(u_BD - v_BD),
        jnp.square(jnp.maximum(u_BD, v_BD)),
    ),
}


class PairClassifier(nn.Module):
    """Maps the vectors of two texts to C numbers.

    Attributes:
        C: classes.
        features: of `FEATURES`, which stand side by side before the dense layer.
        dropout: of these.
    """

    C: int
    features: str = "difference"
    dropout: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "features", FEATURES)

    @nn.compact
    def __call__(self, u_BD, v_BD, *, train: bool):
        """Computes logits [B, C] float32."""
        x_BD = jnp.concatenate(FEATURES[self.features](u_BD, v_BD), -1).astype(jnp.float32)
        x_BD = Dropout(self.dropout)(x_BD, train=train)
        w_DC = params.param(self, "w_DC", params.normal(0.02), (x_BD.shape[-1], self.C), decay=True)
        return x_BD @ w_DC + params.param(self, "bias_C", params.zeros, (self.C,), decay=False)
