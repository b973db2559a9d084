"""Dropout whose decisions are a hash of the key and the position."""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn


class Dropout(nn.Module):
    """Zeroes a fraction of the entries and scales up the rest.

    The mask is a hash of (key, position): it fuses into whatever surrounds it, is recomputed
    instead of stored for the backward pass, and is the same on any layout of devices.  Good
    enough to drop with; not a cryptographic generator.
    """

    rate: float

    @nn.compact
    def __call__(self, x, *, train: bool):
        if not train or self.rate == 0:
            return x
        words = jax.random.bits(self.make_rng("dropout"), (2,), jnp.uint32)
        return apply_dropout(self.rate, x, words)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def apply_dropout(rate: float, x, words):
    """`x` without a fraction of its entries, chosen by two uint32 words; the rest is scaled up."""
    kept = _hash(x.shape, words) >= jnp.uint32(min(rate * 2**32, 2**32 - 1))
    return jnp.where(kept, x * (1 / (1 - rate)), 0).astype(x.dtype)


apply_dropout.defvjp(
    lambda rate, x, words: (apply_dropout(rate, x, words), words),
    lambda rate, words, dy: (apply_dropout(rate, dy, words), None),
)


def _hash(shape: tuple[int, ...], words) -> jax.Array:
    """Uniform uint32 of this shape: two multiply-xorshift rounds of the position and the key."""
    position = jnp.zeros(shape, jnp.uint32)
    for axis, size in enumerate(shape):
        position = position * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    x = position * jnp.uint32(0x9E3779B1) + words[0]
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B) + words[1]
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
