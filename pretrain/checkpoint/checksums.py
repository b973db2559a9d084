"""A checksum of every array, computed where the array lives and the same on any layout.

Orbax does not notice a flipped bit, so what was saved is written down and compared with what
came back.  Each word is mixed with its position and the results are added modulo 2^32: integer
addition is exact in any order, so neither the mesh nor the process count shows in the sum.
"""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}  # by size in bytes


def mix(x: jax.Array) -> jax.Array:
    """A bijection of uint32 in which every input bit moves about half of the output bits.

    The finaliser of MurmurHash3 (Appleby).
    """
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def words(x: jax.Array) -> jax.Array:
    """The bits of each element of `x` as uint32; types of up to 4 bytes."""
    x = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
    return jax.lax.bitcast_convert_type(x, WORDS[x.dtype.itemsize]).astype(jnp.uint32)


def positions(shape: tuple[int, ...]) -> jax.Array:
    """Each element's place in row-major order, modulo 2^32; no reshape, so it shards freely."""
    place = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = jnp.uint32(math.prod(shape[axis + 1 :]) % 2**32)
        place += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * stride
    return place


@jax.jit
def checksum(x: jax.Array) -> jax.Array:
    """uint32[3]: two sums over the bits of `x`, and 1 if a float among them is not finite.

    For a fixed position a word's term is a bijection of the word, so a change to one element
    always changes both sums; any other change passes with a chance of 2^-64.
    """
    word, place = words(x), positions(x.shape)
    first = mix(word + place * jnp.uint32(0x9E3779B9))
    second = mix(first ^ (place * jnp.uint32(0x7FEB352D) + jnp.uint32(1)))
    strange = ~jnp.isfinite(x) if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.zeros(x.shape, bool)
    terms, zero = (first, second, strange.astype(jnp.uint32)), jnp.uint32(0)
    # One pass: reduced apart, XLA keeps arrays as large as `x` in between.
    return jnp.stack(jax.lax.reduce(terms, (zero,) * 3, _combine, tuple(range(x.ndim))))


def _combine(a: tuple, b: tuple) -> tuple:
    return a[0] + b[0], a[1] + b[1], a[2] | b[2]


def describe(leaves: Mapping[str, jax.Array | np.ndarray]) -> tuple[dict[str, dict], list[str]]:
    """What is written beside the arrays, and the names of those that are not finite.

    Returns:
        ({name: {"shape": [2, 3], "dtype": "float32", "sum": "0123456789abcdef"}}, names)
    """
    # One at a time: queued together, the collectives of many small programs can starve each other.
    sums = {name: jax.device_get(checksum(leaf)) for name, leaf in leaves.items()}
    table = {
        name: {**layout(leaf), "sum": f"{int(sums[name][0]):08x}{int(sums[name][1]):08x}"}
        for name, leaf in leaves.items()
    }
    return table, [name for name in leaves if sums[name][2]]


def layout(leaf: jax.Array | np.ndarray | jax.ShapeDtypeStruct) -> dict:
    """Shape and dtype, as JSON keeps them."""
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
