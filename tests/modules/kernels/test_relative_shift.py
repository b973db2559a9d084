"""Rows are cut from places of their own."""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import relative_shift
from tests.support.kernel_cases import Case, assert_is_reference, every_form

B, H = 2, 3


@pytest.mark.parametrize(("cut", "put"), relative_shift.FORMS.values())
@pytest.mark.parametrize(("R", "J"), [(1, 1), (6, 5), (12, 7), (12, 4), (10, 5), (17, 1)])
def test_rows_are_cut_from_every_place_and_put_back_on_every_platform(cut, put, R, J):
    x_BHPR = np.arange(B * H * 2 * R, dtype=np.float32).reshape(B, H, 2, R)
    for start in range(max(R - J, 1)):
        start_BP = np.array([[start, 0], [max(R - J - 1, 0), start]])
        cut_BHPJ = np.asarray(cut(x_BHPR, jnp.asarray(start_BP), J))
        put_BHPR = np.asarray(put(cut_BHPJ, jnp.asarray(start_BP), R))
        for b, h, p in np.ndindex(B, H, 2):
            here = slice(start_BP[b, p], start_BP[b, p] + J)
            np.testing.assert_array_equal(cut_BHPJ[b, h, p], x_BHPR[b, h, p, here])
            expected = np.zeros(R)
            expected[here] = x_BHPR[b, h, p, here]
            np.testing.assert_array_equal(put_BHPR[b, h, p], expected)


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
