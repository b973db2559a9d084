"""Dense layers are their reference, values and gradients."""

import numpy as np

from modules.kernels import dense
from tests.support.kernel_cases import B, Case, D, L, assert_is_reference, every_form

RNG = np.random.default_rng(0)
CASE = Case(
    lambda a: dense.dense(a["x_BLD"], a["w_DF"]),
    lambda a: dense.reference(a["x_BLD"], a["w_DF"]),
    {"x_BLD": RNG.normal(size=(B, L, D)), "w_DF": RNG.normal(size=(D, 8))},
    (dense,),
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
