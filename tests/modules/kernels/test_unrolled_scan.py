"""Layers one after another are those of a loop."""

import jax.numpy as jnp
import numpy as np

from modules.kernels import unrolled_scan
from tests.support.kernel_cases import B, Case, D, L, assert_is_reference, every_form

N = 3


def step(x_BLD, w_DD):
    x_BLD = jnp.tanh(x_BLD @ w_DD)
    return x_BLD, x_BLD.sum(1)


RNG = np.random.default_rng(0)
CASE = Case(
    lambda a: unrolled_scan.scan_layers(step, a["x_BLD"], a["w_DD"], N),
    lambda a: unrolled_scan.reference(step, a["x_BLD"], a["w_DD"], N),
    {"x_BLD": RNG.normal(size=(B, L, D)), "w_DD": RNG.normal(size=(N, D, D))},
    (unrolled_scan,),
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
