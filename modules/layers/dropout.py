"""Dropout whose decisions are a hash of the key and the position."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import choose_form
from modules.kernels.dropout_bits import FORMS, DropoutKey, apply_dropout


class Dropout(nn.Module):
    """Zeroes a fraction of the entries and scales up the rest (Srivastava et al. 2014).

    Attributes:
        rate: the fraction that is zeroed.
        shared: axes along which all entries have one decision: the positions of a row in locked
            dropout (Merity et al. 2017).
    """

    rate: float
    shared: tuple[int, ...] = ()

    def __call__(self, x, *, train: bool):
        key = self.make_key(train=train)
        if key is None:
            return x
        words, decide = key.words, choose_form(FORMS)
        if not self.shared:
            return apply_dropout(self.rate, x, words, decide)
        shape = [1 if axis in self.shared else size for axis, size in enumerate(x.shape)]
        return x * apply_dropout(self.rate, jnp.ones(shape, x.dtype), words, decide)

    def make_key(self, *, train: bool) -> DropoutKey | None:
        """Draws what decides about one array; None: nothing is dropped."""
        if not train or self.rate == 0:
            return None
        # Two words seed the hash of every position; a generator would draw each position's bits.
        # The mask is the same on any layout of devices.  It is no cryptographic generator.
        return DropoutKey(self.rate, jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32))
