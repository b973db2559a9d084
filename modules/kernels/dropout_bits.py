"""Dropout by a hash of the key and the position, the same on any layout of devices."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

Decide = Callable[[float, tuple[int, ...], jax.Array], jax.Array]  # see `decide_by_hash`

SPREAD = 0x9E3779B1  # xxHash's first prime


class DropoutKey(NamedTuple):
    """Decides, with an entry's position, whether the entry is dropped.

    Attributes:
        rate: the fraction that is zeroed.
        words: two uint32 words.
    """

    rate: float
    words: jax.Array


def reference(rate: float, x, words, decide: Decide):
    """Drops by the same bits, with the gradient of autodiff, which keeps the mask."""
    return jnp.where(decide(rate, x.shape, words), x * (1 / (1 - rate)), 0).astype(x.dtype)


def apply_dropout(rate: float, x, words, decide: Decide):
    """Zeroes a fraction of the entries, chosen by two uint32 words, and scales up the rest.

    Args:
        decide: one of `FORMS`, by platform.
    """
    # The mask is computed again on the way back: 0 bytes an entry are kept, where autodiff would
    # keep 3 in bfloat16.  CSE may undo that outside a loop, where it costs nothing.  The hash
    # fuses into whatever surrounds it: of [8, 128, 768] entries, forwards and backwards on one
    # CPU core, `jax.random.bernoulli` takes 6.4 times as long.
    drop = functools.partial(reference, rate, decide=decide)
    return jax.checkpoint(drop, prevent_cse=False)(x, words)


def decide_by_hash(rate: float, shape: tuple[int, ...], words):
    """Decides which entries are kept: bool, a hash for each."""
    return is_kept(rate, _count_positions(shape), words)


def is_kept(rate: float, position, words):
    """Decides about the entries at these positions of an array, uint32: bool."""
    return _is_high(rate, _hash(position, words))


def is_kept_at_sum(rate: float, a, b, words):
    """Decides as `is_kept` does about position a + b; both are broadcast: bool."""
    # A product of a sum is the sum of products, modulo 2^32, too: rows and columns are multiplied
    # in the place of all entries.
    a, b = (x * jnp.uint32(SPREAD) for x in (a, b))
    return _is_high(rate, _mix(a + words[0] + b, words[1]))


def decide_by_halves(rate: float, shape: tuple[int, ...], words):
    """Decides by half a hash: neighbours have the two halves of one."""
    return is_kept_by_halves(rate, _count_positions(shape), words)


def is_kept_by_halves(rate: float, position, words):
    """Decides about the entries at these positions as `decide_by_halves` does: bool."""
    bits = _hash(position >> 1, words)
    half = jnp.where(position & 1 == 0, bits >> 16, bits & 0xFFFF)
    return half >= jnp.uint32(rate * 2**16)


def _count_positions(shape: tuple[int, ...]):
    # From iotas, which a device makes for its shard alone: no layout changes a bit.
    position = jnp.zeros(shape, jnp.uint32)
    for axis, size in enumerate(shape):
        position = position * jnp.uint32(size) + jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
    return position


def _hash(position, words):
    """Hashes position and key to uniform uint32 by two multiply-xorshift rounds."""
    return _mix(position * jnp.uint32(SPREAD) + words[0], words[1])


def _mix(x, word):
    # The multipliers and shifts of MurmurHash3's finalizer.  With one word alone, the masks of two
    # keys would be shifts of each other.
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B) + word
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def _is_high(rate: float, bits):
    return bits >= jnp.uint32(rate * 2**32)


# A GPU's thread takes four neighbours, and its compiler hashes for each two of them once: of an
# array [32, 12, 512, 896] it executes 57 integer instructions for four entries, else 75.  They take
# longer than the array's way through memory.  Elsewhere each entry would hash for itself all the
# same.
FORMS = {"gpu": decide_by_halves, "default": decide_by_hash}
# The same about positions, for kernels that make the entries themselves.
POSITION_FORMS = {"gpu": is_kept_by_halves, "default": is_kept}
