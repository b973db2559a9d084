"""Masks without a pattern, the same on any layout, and their gradient."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from modules.kernels import dropout_bits
from tests.support.kernel_cases import B, Case, D, L, assert_is_reference

every_decision = pytest.mark.parametrize("decide", dropout_bits.FORMS.values())


def apply(decide, x, key=0, rate=0.5):
    return dropout_bits.apply_dropout(rate, x, jax.random.bits(jax.random.key(key), (2,)), decide)


@every_decision
def test_the_gradient_passes_exactly_where_the_value_did(decide):
    x = np.random.default_rng(0).uniform(1, 4, (50, 60)).astype(np.float32)
    y, pull = jax.vjp(lambda x: apply(decide, x, rate=0.4), x)
    np.testing.assert_array_equal(pull(jnp.ones_like(x))[0] != 0, y != 0)
    np.testing.assert_allclose(pull(x)[0], y, rtol=1e-6)


@every_decision
def test_no_two_masks_and_no_two_neighbours_go_together(decide):
    draw_masks = jax.jit(jax.vmap(lambda key: apply(decide, jnp.ones((128, 128)), key) > 0))
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


@every_decision
def test_the_mask_does_not_depend_on_where_the_array_lies(decide):
    x = jnp.ones((16, 24))
    expected = apply(decide, x)
    np.testing.assert_array_equal(apply(decide, x), expected)
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    for spec in (P("a", "b"), P(None, ("a", "b"))):
        split = jax.device_put(x, NamedSharding(mesh, spec))
        assert len(split.sharding.device_set) == 8
        np.testing.assert_array_equal(jax.jit(apply, static_argnums=0)(decide, split), expected)


WORDS = np.array([7, 9], np.uint32)


@pytest.mark.parametrize("form", dropout_bits.FORMS)
def test_a_position_is_decided_about_as_its_entry(form):
    entries = dropout_bits.FORMS[form](0.4, (3, 5, 7), WORDS)
    position = np.arange(3 * 5 * 7, dtype=np.uint32)
    kept = dropout_bits.POSITION_FORMS[form](0.4, position, WORDS)
    np.testing.assert_array_equal(kept, np.ravel(entries))


def test_a_sum_of_positions_is_decided_about_as_its_position():
    # The first products and the last wrap around.
    rows = np.array([[5], [2**32 - 3]], np.uint32)
    columns = np.arange(7, dtype=np.uint32)
    kept = dropout_bits.is_kept_at_sum(0.4, rows, columns, WORDS)
    np.testing.assert_array_equal(kept, dropout_bits.is_kept(0.4, rows + columns, WORDS))


CASES = {
    form: Case(
        lambda a, decide=decide: dropout_bits.apply_dropout(0.4, a["x_BLD"], WORDS, decide),
        lambda a, decide=decide: dropout_bits.reference(0.4, a["x_BLD"], WORDS, decide),
        {"x_BLD": np.random.default_rng(0).normal(size=(B, L, D))},
        (dropout_bits,),
    )
    for form, decide in dropout_bits.FORMS.items()
}


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("form", CASES)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASES[form], form, devices, monkeypatch)
