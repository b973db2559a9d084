"""Dropout whose decisions are a hash of the key and the position."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.kernels.dropout_bits import apply_dropout


class Dropout(nn.Module):
    """Zeroes a fraction of the entries and scales up the rest (Srivastava et al. 2014)."""

    # The fraction that is zeroed.
    rate: float

    @nn.compact
    def __call__(self, x, *, train: bool):
        if not train or self.rate == 0:
            return x
        # Two words seed the hash of every position; a generator would draw each position's bits.
        # The mask is the same on any layout of devices.  It is no cryptographic generator.
        words = jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32)
        return apply_dropout(self.rate, x, words)
