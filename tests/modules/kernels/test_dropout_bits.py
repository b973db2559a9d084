"""Masks without a pattern, the same on any layout, and their gradient."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from modules.kernels import dropout_bits
from tests.support.kernel_cases import B, Case, D, L, assert_is_reference, every_form


def apply(x, key=0, rate=0.5):
    return dropout_bits.apply_dropout(rate, x, jax.random.bits(jax.random.key(key), (2,)))


def test_the_gradient_passes_exactly_where_the_value_did():
    x = np.random.default_rng(0).uniform(1, 4, (50, 60)).astype(np.float32)
    y, pull = jax.vjp(lambda x: apply(x, rate=0.4), x)
    np.testing.assert_array_equal(pull(jnp.ones_like(x))[0] != 0, y != 0)
    np.testing.assert_allclose(pull(x)[0], y, rtol=1e-6)


def test_no_two_masks_and_no_two_neighbours_go_together():
    draw_masks = jax.jit(jax.vmap(lambda key: apply(jnp.ones((128, 128)), key) > 0))
    masks = np.asarray(draw_masks(jnp.arange(24))) * 2.0 - 1
    limit = 5 / math.sqrt(masks[0].size)
    flat = masks.reshape(len(masks), -1)
    across_keys = flat @ flat.T / flat.shape[1] - np.eye(len(flat))
    assert np.abs(across_keys).max() < limit
    for down, right in [(0, 1), (1, 0), (1, 1), (0, 2), (0, 64), (64, 0)]:
        shifted = masks[:, down:, right:] * masks[:, : 128 - down, : 128 - right]
        assert np.abs(shifted.mean((1, 2))).max() < limit * 1.5
    means = flat.mean(1) * math.sqrt(flat.shape[1])
    assert 0.6 < means.std() < 1.5  # as many masks are a little too full as chance has it


def test_the_mask_does_not_depend_on_where_the_array_lies():
    x = jnp.ones((16, 24))
    expected = apply(x)
    np.testing.assert_array_equal(apply(x), expected)
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    for spec in (P("a", "b"), P(None, ("a", "b"))):
        split = jax.device_put(x, NamedSharding(mesh, spec))
        assert len(split.sharding.device_set) == 8
        np.testing.assert_array_equal(jax.jit(apply)(split), expected)


WORDS = np.array([7, 9], np.uint32)
CASE = Case(
    lambda a: dropout_bits.apply_dropout(0.4, a["x_BLD"], WORDS),
    lambda a: dropout_bits.reference(0.4, a["x_BLD"], WORDS),
    {"x_BLD": np.random.default_rng(0).normal(size=(B, L, D))},
    (dropout_bits,),
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
