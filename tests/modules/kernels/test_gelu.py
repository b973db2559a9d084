"""GELU and its gradient, by every form."""

import numpy as np

from modules.kernels import gelu
from tests.support.kernel_cases import Case, assert_is_reference, every_form

X_BLD = np.linspace(-6, 6, 8 * 2 * 4).reshape(8, 2, 4)
CASE = Case(
    lambda a: gelu.gelu(a["x_BLD"]), lambda a: gelu.reference(a["x_BLD"]), {"x_BLD": X_BLD}, (gelu,)
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
