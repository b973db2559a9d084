"""Computes a checksum of every array on its own devices, the same under any sharding.

Orbax does not notice a flipped bit, so the checksums are saved and compared with those of the
restored arrays.
"""

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

WORDS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32}  # by size in bytes


def mix(x: jax.Array) -> jax.Array:
    """Hashes each uint32 by the finaliser of MurmurHash3 (Appleby), a bijection."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)


def to_words(x: jax.Array) -> jax.Array:
    """Casts the bits of each element of `x`, of at most 4 bytes, to uint32."""
    # A bool has no bits to cast.
    x = x.astype(jnp.uint8) if x.dtype == jnp.bool_ else x
    return jax.lax.bitcast_convert_type(x, WORDS[x.dtype.itemsize]).astype(jnp.uint32)


def number_elements(shape: tuple[int, ...]) -> jax.Array:
    """Numbers the elements of a shape in row-major order, modulo 2^32: uint32 [*shape]."""
    # Built from iotas: a reshape of a flat range would gather a sharded array on every device.
    place = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = jnp.uint32(math.prod(shape[axis + 1 :]) % 2**32)
        place += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * stride
    return place


@jax.jit
def checksum(x: jax.Array) -> jax.Array:
    """Sums the hashed bits of `x` in two ways, and looks for values that are not finite.

    Returns:
        uint32 [3]: the two sums, and 1 if a float is not finite.
    """
    word, place = to_words(x), number_elements(x.shape)
    # For a fixed position a word's term is a bijection of the word.  So a change to one element
    # always changes both sums; any other change passes with a chance of 2^-64.
    first = mix(word + place * jnp.uint32(0x9E3779B9))
    second = mix(first ^ (place * jnp.uint32(0x7FEB352D) + jnp.uint32(1)))
    not_finite = (
        ~jnp.isfinite(x) if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.zeros(x.shape, bool)
    )
    terms, zero = (first, second, not_finite.astype(jnp.uint32)), jnp.uint32(0)
    # Added modulo 2^32: exact in any order, so neither the mesh nor the process count shows.
    # One pass: reduced apart, XLA keeps arrays as large as `x` in between.
    return jnp.stack(jax.lax.reduce(terms, (zero,) * 3, _combine, tuple(range(x.ndim))))


def _combine(a: tuple, b: tuple) -> tuple:
    return a[0] + b[0], a[1] + b[1], a[2] | b[2]


def describe(leaves: Mapping[str, jax.Array | np.ndarray]) -> tuple[dict[str, dict], list[str]]:
    """Describes the arrays for the record of a checkpoint.

    Returns:
        ({name: {"shape": [2, 3], "dtype": "float32", "sum": "0123456789abcdef"}}, names of the
        arrays that are not finite)
    """
    # One at a time: queued together, the collectives of many small programs can starve each other.
    sums = {name: jax.device_get(checksum(leaf)) for name, leaf in leaves.items()}
    table = {
        name: {**describe_layout(leaf), "sum": f"{int(sums[name][0]):08x}{int(sums[name][1]):08x}"}
        for name, leaf in leaves.items()
    }
    return table, [name for name in leaves if sums[name][2]]


def describe_layout(leaf: jax.Array | np.ndarray | jax.ShapeDtypeStruct) -> dict:
    """Returns shape and dtype as JSON values."""
    return {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
