"""Softmax over what is visible, and its gradient."""

import jax
import numpy as np
import pytest

from modules.kernels import softmax as kernel
from modules.kernels.softmax import softmax
from tests.support.kernel_cases import B, Case, L, assert_is_reference, every_form, narrow


def test_a_row_that_sees_nothing_gives_zeros_and_gets_no_gradient():
    scores, visible = np.ones((2, 3), np.float32), np.array([[True, False, True], [False] * 3])
    values, pull = jax.vjp(lambda scores: softmax(scores, visible), scores)
    np.testing.assert_allclose(values, [[0.5, 0, 0.5], [0, 0, 0]])
    grads = pull(np.array([[1, 5, -1], [1, 2, 3]], np.float32))[0]
    np.testing.assert_allclose(grads, [[0.5, 0, -0.5], [0, 0, 0]], atol=1e-7)


@pytest.mark.parametrize("size", [1e4, -1e4, 3e38])
def test_softmax_of_huge_scores_is_finite(size):
    scores = np.array([[size, size, size / 2]], np.float32)
    np.testing.assert_allclose(softmax(scores, np.array([[True, True, False]])), [[0.5, 0.5, 0]])


RNG = np.random.default_rng(0)
SCORES = {"a_BHLJ": 9 * RNG.normal(size=(B, 2, L, 5))}
SCORES["visible_BHLJ"] = RNG.random((B, 1, L, 5)) < 0.6
SCORES["visible_BHLJ"][..., 0] = True
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
