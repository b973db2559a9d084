"""Dense layers are their reference, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import dense
from tests.support.kernel_cases import B, Case, D, L, assert_is_reference, every_form

RNG = np.random.default_rng(0)


def make_case(F: int, M: int) -> Case:
    def reference(a):
        x_BLD = a["x_BLD"]
        frozen_BMD = jax.lax.stop_gradient(x_BLD[:, :M])
        return dense.reference(jnp.concatenate([frozen_BMD, x_BLD[:, M:]], axis=1), a["w_DF"])

    return Case(
        lambda a: dense.dense(a["x_BLD"], a["w_DF"], M),
        reference,
        {"x_BLD": RNG.normal(size=(B, L, D)), "w_DF": RNG.normal(size=(D, F))},
        (dense,),
    )


CASES = {"wider": make_case(8, 0), "narrower": make_case(2, 0), "a memory": make_case(D, 1)}


@pytest.mark.parametrize("name", CASES)
@every_form(CASES["wider"])
def test_values_and_gradients_are_the_reference_s(name, form, devices, monkeypatch):
    assert_is_reference(CASES[name], form, devices, monkeypatch)
