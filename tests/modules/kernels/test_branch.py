"""A result chosen on the device is its reference, whichever it is."""

import numpy as np
import pytest

from modules.kernels import branch
from tests.support.kernel_cases import B, Case, D, L, assert_is_reference, every_form


def choose(choice):
    def compute(a):
        x_BLD = a["x_BLD"]
        return choice(a["is_true"], lambda: [x_BLD * 2, x_BLD[0]], lambda: [-x_BLD, x_BLD[1]])

    return compute


CASES = {
    is_true: Case(
        choose(branch.choose_result),
        choose(branch.reference),
        {
            "x_BLD": np.random.default_rng(0).normal(size=(B, L, D)),
            "is_true": np.array(is_true),
        },
        (branch,),
    )
    for is_true in (True, False)
}


@pytest.mark.parametrize("is_true", CASES)
@every_form(CASES[True])
def test_values_and_gradients_are_the_reference_s(is_true, form, devices, monkeypatch):
    assert_is_reference(CASES[is_true], form, devices, monkeypatch)
