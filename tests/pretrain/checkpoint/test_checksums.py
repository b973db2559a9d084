"""What moves a checksum, and what must not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from pretrain.checkpoint import checksums

DTYPES = ["float32", "bfloat16", "float16", "int32", "uint32", "bool", "int8", "uint16"]
N = 24  # elements; one shape, so that each dtype compiles once


def sums(x):
    return tuple(int(n) for n in checksums.checksum(x)[:2])


def random_bytes(dtype, seed):
    draw = np.random.default_rng(seed).bytes(N * jnp.dtype(dtype).itemsize)
    if dtype == "bool":
        return np.frombuffer(draw, np.uint8) % 2 == 1
    return np.frombuffer(draw, jnp.dtype(dtype)).copy()


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(DTYPES), st.integers(0, 99), st.integers(0, N - 1), st.integers(0, 31))
def test_any_flipped_bit_moves_both_sums(dtype, seed, place, bit):
    x = random_bytes(dtype, seed)
    y = x.copy()
    flipped = y[place : place + 1].view(np.uint8)
    if dtype == "bool":
        flipped ^= 1
    else:
        flipped[bit // 8 % flipped.size] ^= 1 << bit % 8
    assert sums(x)[0] != sums(y)[0]
    assert sums(x)[1] != sums(y)[1]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(DTYPES), st.integers(0, 99), st.permutations(range(N)))
def test_swapping_two_elements_moves_the_sums(dtype, seed, order):
    x = random_bytes(dtype, seed)
    i, j = order[:2]
    y = x.copy()
    y[[i, j]] = x[[j, i]]
    assert (sums(x) == sums(y)) == (x[i : i + 1].tobytes() == x[j : j + 1].tobytes())


@pytest.mark.parametrize(
    ("spec", "dtype"),
    [(P("y", "x"), "float32"), (P(("x", "y")), "bfloat16"), (P(None, None, "x"), "bool")],
)
def test_the_sums_do_not_depend_on_the_layout(spec, dtype):
    x = jax.random.normal(jax.random.key(0), (8, 4, 6)).astype(dtype)
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    assert sums(jax.device_put(x, NamedSharding(mesh, spec))) == sums(x)


def test_the_sums_are_those_of_the_definition():
    """A checkpoint must verify on another machine and with a later version of this code."""
    x = np.array([[1.5, -2.0], [0.0, 3e-40]], np.float32)
    word, place = x.view(np.uint32).ravel(), np.arange(4, dtype=np.uint32)

    def mix(h):
        h = (h ^ (h >> 16)) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)
        return h ^ (h >> 16)

    first = mix(word + place * np.uint32(0x9E3779B9))
    second = mix(first ^ (place * np.uint32(0x7FEB352D) + np.uint32(1)))
    assert sums(x) == (first.sum(dtype=np.uint32), second.sum(dtype=np.uint32))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1)])
def test_scalars_and_empty_arrays_have_sums(shape):
    table, strange = checksums.describe({"x": jnp.ones(shape)})
    assert table["x"]["shape"] == list(shape)
    assert strange == []


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_leaves_that_are_not_finite_are_named(value, dtype):
    bad = jnp.zeros((3, 4), dtype).at[1, 2].set(value)
    _, strange = checksums.describe({"a": jnp.ones(2), "b/c": bad, "n": jnp.arange(3)})
    assert strange == ["b/c"]


def test_a_checksum_needs_next_to_no_memory():
    compiled = checksums.checksum.lower(jnp.ones((256, 256))).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 4096
