"""Augmentations cut exact numbers, of tokens alone, by the key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers import augmentations
from modules.layers.augmentations import CUTS, draw_view
from tests.support.compiler import quick_jit

L, D = 12, 10
LENGTHS = np.array([12, 9, 1, 7, 0])
VALID_BL = np.arange(L) < LENGTHS[:, None]
VALID_BL[3] = VALID_BL[3, ::-1]  # padded in front
X_BLD = np.random.default_rng(0).normal(1, 0.1, (*VALID_BL.shape, D)).astype(np.float32)


def view(kind, rate=0.25, seed=0):
    draw = quick_jit(lambda key: draw_view(kind, key, jnp.asarray(VALID_BL), D, rate))
    return jax.device_get(draw(jax.random.key(seed)))


def counted(kind, rate):
    """int(n * rate) of each row, in entries of its vectors."""
    return {
        "token_cutoff": [D * int(n * rate) for n in LENGTHS],
        "feature_cutoff": [L * int(D * rate)] * len(LENGTHS),
        "dropout": [int(n * D * rate) for n in LENGTHS],
    }[kind]


@pytest.mark.parametrize("rate", [0.1, 0.25, 1.0])
@pytest.mark.parametrize("kind", CUTS)
def test_exactly_so_many_are_cut_and_nothing_is_rescaled(kind, rate):
    x_BLD = np.asarray(view(kind, rate).edit(X_BLD))
    np.testing.assert_array_equal((x_BLD == 0).sum((1, 2)), counted(kind, rate))
    assert ((x_BLD == 0) | (x_BLD == X_BLD)).all()
    if kind != "feature_cutoff":
        assert not (x_BLD == 0)[~VALID_BL].any()
    if rate == 0.25:
        np.testing.assert_array_equal(view(kind, rate).keep, view(kind, rate).keep)
        assert (view(kind, rate).keep != view(kind, rate, seed=1).keep).any()


def test_shuffling_permutes_tokens_and_leaves_padding():
    order_BL = view("shuffle").order_BL
    assert (order_BL[0] != np.arange(L)).any()
    for order_L, valid_L in zip(order_BL, VALID_BL, strict=True):
        np.testing.assert_array_equal(order_L[~valid_L], np.flatnonzero(~valid_L))
        np.testing.assert_array_equal(np.sort(order_L[valid_L]), np.flatnonzero(valid_L))


def test_a_span_is_a_run_of_the_tokens_that_are_left():
    begins = set()
    for seed in range(8):
        left_BL = view("span", 0.3, seed).valid_BL
        expected = np.minimum([max(int(n * 0.7), 1) for n in LENGTHS], LENGTHS)
        np.testing.assert_array_equal(left_BL.sum(1), expected)
        assert not (left_BL & ~VALID_BL).any()
        edges = np.abs(np.diff(np.pad(left_BL.astype(int), ((0, 0), (1, 1))), axis=1)).sum(1)
        assert (edges == 2 * (LENGTHS > 0)).all()
        begins.add(left_BL[0].argmax())
    assert len(begins) > 2


def test_noise_has_one_length_wherever_there_is_a_gradient():
    grads_BLD = np.where(VALID_BL[..., None], 1e-25 * X_BLD, 0)
    noise_BLD = augmentations.normalize_noise(grads_BLD, 2.0)
    np.testing.assert_allclose(np.linalg.norm(noise_BLD, axis=-1), 2.0 * VALID_BL, rtol=1e-5)
