"""Rows are rolled and cut from places of their own."""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import relative_shift
from tests.support.kernel_cases import Case, assert_is_reference, every_form

B, H = 2, 3


@pytest.mark.parametrize("roll", relative_shift.FORMS.values())
@pytest.mark.parametrize("R", [1, 12, 17])
def test_rows_are_rolled_by_their_own_numbers_on_every_platform(roll, R):
    x_BHPR = np.arange(B * H * 3 * R, dtype=np.float32).reshape(B, H, 3, R)
    by_BP = np.array([[0, 1, R - 1], [R // 2, R - 1, 1]]) % R
    rolled = roll(x_BHPR, jnp.asarray(by_BP))
    for b, h, p in np.ndindex(B, H, 3):
        np.testing.assert_array_equal(rolled[b, h, p], np.roll(x_BHPR[b, h, p], -by_BP[b, p]))


RNG = np.random.default_rng(0)
STARTS_BP = RNG.integers(0, 3, (8, 2))
CASE = Case(
    lambda a: relative_shift.cut_rows(a["x_BHPR"], STARTS_BP, 5),
    lambda a: relative_shift.reference(a["x_BHPR"], STARTS_BP, 5),
    {"x_BHPR": RNG.normal(size=(8, 2, 2, 5 + 3))},
    (relative_shift,),
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
