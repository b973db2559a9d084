"""Layer normalisation and its gradients, by every form."""

import numpy as np

from modules.kernels import layer_norm
from tests.support.arrays import draw
from tests.support.kernel_cases import Case, assert_is_reference, every_form

ARRAYS = {
    "x_BLD": (3 + 5 * draw(8, 3, 16)).astype(np.float32),
    "scale_D": draw(16, seed=1).astype(np.float32),
    "bias_D": draw(16, seed=2).astype(np.float32),
}
CASE = Case(
    lambda a: layer_norm.layer_norm(a["x_BLD"], a["scale_D"], a["bias_D"], 1e-12),
    lambda a: layer_norm.reference(a["x_BLD"], a["scale_D"], a["bias_D"], 1e-12),
    ARRAYS,
    (layer_norm,),
    2e-5,
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
