"""Dense layers are their reference, values and gradients."""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import dense
from tests.support.kernel_cases import B, Case, D, L, assert_is_reference, every_form

RNG = np.random.default_rng(0)
X_BLD = RNG.normal(size=(B, L, D))


def make_case(**weight):
    ((name, _),) = weight.items()
    return Case(
        lambda a: dense.dense(a["x_BLD"], a[name]),
        lambda a: jnp.einsum("BLD,DF->BLF", a["x_BLD"], a[name].reshape(D, -1)),
        {"x_BLD": X_BLD, **weight},
        (dense,),
    )


CASE = make_case(w_DF=RNG.normal(size=(D, 8)))
HEADS = make_case(w_DHK=RNG.normal(size=(D, 2, 6)))
OUTPUT = make_case(w_HKF=RNG.normal(size=(2, D // 2, 6)))


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)


@pytest.mark.parametrize("case", [HEADS, OUTPUT])
def test_heads_and_their_width_are_one_dimension(case, monkeypatch):
    assert_is_reference(case, "default", 1, monkeypatch)
