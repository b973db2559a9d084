"""Dropout whose decisions are a hash of the key and the position."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.kernels.dropout_bits import apply_dropout


class Dropout(nn.Module):
    """Zeroes a fraction of the entries and scales up the rest.

    The mask is a hash of (key, position): the same on any layout of devices.  Good enough to drop
    with; not a cryptographic generator.

    Attributes:
        rate: the fraction.
    """

    rate: float

    @nn.compact
    def __call__(self, x, *, train: bool):
        if not train or self.rate == 0:
            return x
        words = jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32)
        return apply_dropout(self.rate, x, words)
