"""Masks without a pattern, the same on any layout, and their gradient."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from modules.kernels import dropout_bits
from modules.kernels.dropout_bits import apply_dropout
from tests.support.kernel_cases import B, Case, D, L, assert_is_reference, every_form


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def dropped(x, key=0, rate=0.1):
    return apply_dropout(rate, x, jax.random.bits(jax.random.key(key), (2,)))


def kept(shape, key=0, rate=0.5):
    return np.asarray(dropped(jnp.ones(shape), key, rate) > 0)


def test_the_gradient_passes_exactly_where_the_value_did():
    x = 1 + np.abs(draw(50, 60))
    y, back = jax.vjp(lambda x: dropped(x, rate=0.4), x)
    np.testing.assert_array_equal(back(jnp.ones_like(x))[0] != 0, y != 0)
    np.testing.assert_allclose(back(x)[0], y, rtol=1e-6)


def test_one_key_gives_one_mask_and_another_key_another():
    assert (kept((40, 50), 3) == kept((40, 50), 3)).all()
    assert 0.4 < (kept((40, 50), 3) == kept((40, 50), 4)).mean() < 0.6


def test_no_two_masks_and_no_two_neighbours_go_together():
    masks = np.stack([kept((128, 128), key) for key in range(24)]) * 2.0 - 1
    limit = 5 / math.sqrt(masks[0].size)
    flat = masks.reshape(len(masks), -1)
    across_keys = flat @ flat.T / flat.shape[1] - np.eye(len(flat))
    assert np.abs(across_keys).max() < limit
    for mask in masks:
        for down, right in [(0, 1), (1, 0), (1, 1), (0, 2), (0, 64), (64, 0)]:
            a, b = mask[down:, right:], mask[: 128 - down, : 128 - right]
            assert abs((a * b).mean()) < limit * 1.5
    means = flat.mean(1) * math.sqrt(flat.shape[1])
    assert 0.6 < means.std() < 1.5  # as many masks are a little too full as chance has it


def test_the_mask_does_not_depend_on_where_the_array_lies():
    x = 1 + np.abs(draw(16, 24))
    alone = jax.jit(functools.partial(dropped, rate=0.5))(x)
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    for spec in (P("a"), P("a", "b"), P(None, ("a", "b"))):
        spread = jax.device_put(x, NamedSharding(mesh, spec))
        assert len(spread.sharding.device_set) == 8
        np.testing.assert_array_equal(jax.jit(functools.partial(dropped, rate=0.5))(spread), alone)


RNG = np.random.default_rng(0)
CASE = Case(
    lambda a: dropout_bits.apply_dropout(0.4, a["x_BLD"], np.array([7, 9], np.uint32)),
    lambda a: dropout_bits.reference(0.4, a["x_BLD"], np.array([7, 9], np.uint32)),
    {"x_BLD": RNG.normal(size=(B, L, D))},
    (dropout_bits,),
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
