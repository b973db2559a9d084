"""A loss over the vocabulary in chunks is its reference."""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import softmax_cross_entropy
from tests.support.kernel_cases import Case, assert_is_reference, every_form, scores

RNG = np.random.default_rng(0)
CASE = Case(
    lambda a: softmax_cross_entropy.softmax_cross_entropy(**a, chunks=2),
    lambda a: softmax_cross_entropy.reference(**a),
    scores(RNG, few=False),
    (softmax_cross_entropy,),
    1e-5,
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)


@pytest.mark.parametrize("total", softmax_cross_entropy.SUMS.values())
def test_every_form_of_a_sum_adds_up_the_positions(total):
    x_BPV = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
    np.testing.assert_allclose(total(jnp.asarray(x_BPV)), x_BPV.sum(1), rtol=1e-6)
