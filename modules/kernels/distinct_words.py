"""A function of a word's characters, computed once for each distinct word of a batch.

Some 4,000 of 15,360 words of running text are different.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from modules.activation_sharding import num_shards
from modules.kernels import RARELY

LEAST_WORDS = 1024  # of fewer most are different
FACTORS = (9, 14)  # of room for distinct words, see `list_sizes`
SLOTS = 2**20  # of the table in which equal words meet


def reference(f: Callable[[Any, jax.Array], jax.Array], weights, chars_BPW):
    """Computes every word by itself."""
    return f(weights, chars_BPW)


def compute_once(f: Callable[[Any, jax.Array], jax.Array], weights, chars_BPW):
    """Computes `f(weights, chars_BPW)`, [B, P, D], from the distinct words among its rows.

    Args:
        f: each result depends on its own word alone, [B, P, W] -> [B, P, D].
        weights: all that `f` depends on besides and that has a gradient.
        chars_BPW: ids of the characters.
    """
    B, P, W = chars_BPW.shape
    sizes = list_sizes(B * P)
    # Devices have words of their own.
    if not sizes or num_shards("B") > 1:
        return reference(f, weights, chars_BPW)
    chars_NW = chars_BPW.reshape(-1, W)
    first_N = find_first(chars_NW)
    numbers_N = jnp.arange(len(first_N), dtype=jnp.int32)
    is_first_N = first_N == numbers_N
    rank_N = jnp.cumsum(is_first_N) - 1  # among distinct words

    def once(size: int, weights, chars_NW):
        # Places behind the last distinct word have the first one again.
        place_N = jnp.where(is_first_N, rank_N, size)
        word_U = jnp.zeros(size, jnp.int32).at[place_N].set(numbers_N, mode="drop")
        x_UD = f(weights, chars_NW[word_U][None])[0]
        # A frequent word's gradients are added up in float32 at least.
        wide = jnp.promote_types(x_UD.dtype, jnp.float32)
        return x_UD.astype(wide)[rank_N[first_N]].astype(x_UD.dtype)

    def one_by_one(weights, chars_NW):
        return f(weights, chars_NW[None])[0]

    # Shapes are known before the batch is: the first that is enough is taken.  What one form keeps
    # for its gradient the others fill with zeros, so the rarer ones compute it again.
    forms: list[Callable] = [*(functools.partial(once, size) for size in sizes), one_by_one]
    forms[1:] = [jax.named_scope(RARELY)(jax.checkpoint(form)) for form in forms[1:]]
    x_ND = jax.lax.switch(sum(rank_N[-1] >= size for size in sizes), forms, weights, chars_NW)
    return x_ND.reshape(B, P, -1)


def list_sizes(words: int) -> list[int]:
    """Lists how many distinct words there is room for, of so many in running text."""
    # They grow with a power of the text below one (Heaps' law): of 2,560 words of presidents'
    # messages 1,020 are distinct, of 15,360 3,470.
    sizes = (-(-int(factor * words ** (2 / 3)) // 64) * 64 for factor in FACTORS)
    return [size for size in sizes if words >= LEAST_WORDS and size < words]


def find_first(chars_NW):
    """Finds for each word the number of one that is spelled alike: mostly the first such."""
    numbers_N, slots_N = jnp.arange(len(chars_NW), dtype=jnp.int32), find_slots(chars_NW)
    first_N = jnp.full(SLOTS, len(chars_NW), jnp.int32).at[slots_N].min(numbers_N)[slots_N]
    # Words that share a slot and are spelled otherwise are computed one by one.
    is_alike_N = (chars_NW[first_N] == chars_NW).all(1)
    return jnp.where(is_alike_N, first_N, numbers_N)


def find_slots(chars_NW):
    """Finds each word's place in a table of `SLOTS`, a hash of its characters."""
    # A power for each place of a character; uint32 wraps around.
    powers = [pow(0x9E3779B1, place, 2**32) for place in range(1, chars_NW.shape[1] + 1)]
    hash_N = (chars_NW.astype(jnp.uint32) * jnp.array(powers, jnp.uint32)).sum(1, dtype=jnp.uint32)
    # The low bits of a product depend on low bits alone: the high ones are folded in before.
    hash_N = (hash_N ^ (hash_N >> 15)) * jnp.uint32(0x85EBCA77)
    return (hash_N ^ (hash_N >> 13)) % SLOTS
