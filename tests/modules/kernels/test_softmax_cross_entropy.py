"""A loss over the vocabulary in chunks is its reference."""

import numpy as np

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
