"""Softmax over what is visible, and its gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import softmax as kernel
from modules.kernels.softmax import softmax
from tests.support.kernel_cases import (
    B,
    Case,
    L,
    assert_is_reference,
    every_form,
    narrow,
)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def masked():
    visible = np.random.default_rng(1).random((2, 1, 5, 7)) < 0.5
    visible[0, 0, 2] = False
    visible[1, 0, 3] = True
    return 20 * draw(2, 3, 5, 7), visible


def test_softmax_is_jax_s_and_zero_where_nothing_is_visible():
    scores, visible = masked()
    found = softmax(scores, visible)
    expected = jax.nn.softmax(scores, where=visible, axis=-1)
    sees = np.broadcast_to(visible.any(-1, keepdims=True), scores.shape)
    np.testing.assert_allclose(found[sees], expected[sees], atol=1e-6)
    assert not np.any(found[~sees])
    assert not np.any(found[~np.broadcast_to(visible, scores.shape)])


def test_softmax_has_the_gradient_of_the_plain_one():
    scores, visible = masked()
    weigh = draw(*scores.shape, seed=2)

    def plain(scores):
        p = jax.nn.softmax(jnp.where(visible, scores, -1e30), axis=-1)
        return (p * visible * visible.any(-1, keepdims=True) * weigh).sum()

    found = jax.grad(lambda s: (softmax(s, visible) * weigh).sum())(scores)
    np.testing.assert_allclose(found, jax.grad(plain)(scores), atol=1e-5)
    assert not np.any(found[~np.broadcast_to(visible, scores.shape)])


@pytest.mark.parametrize("size", [1e4, -1e4, 3e38])
def test_softmax_of_huge_scores_is_finite(size):
    found = softmax(np.array([[size, size, size / 2]], np.float32), np.array([[True, True, False]]))
    np.testing.assert_allclose(found, [[0.5, 0.5, 0]])


RNG = np.random.default_rng(0)
SCORES = {"a_BHLJ": 9 * RNG.normal(size=(B, 2, L, 5))}
SCORES["visible_BHLJ"] = RNG.random((B, 1, L, 5)) < 0.6
CASE = Case(
    lambda a: softmax(a["a_BHLJ"], a["visible_BHLJ"]),
    lambda a: kernel.reference(a["a_BHLJ"], a["visible_BHLJ"]),
    narrow(SCORES),
    (kernel,),
    1e-6,
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
