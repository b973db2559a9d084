"""Each row is cut one place earlier than the row before."""

import numpy as np
import pytest

from modules.kernels import skew
from tests.support.kernel_cases import Case, assert_is_reference, every_form


@pytest.mark.parametrize(("b", "J"), [(1, 1), (1, 4), (3, 5), (5, 2)])
def test_every_row_begins_one_place_before_the_last(b, J):
    x_BHcbW = np.arange(2 * b * (J + b), dtype=np.float32).reshape(2, 1, 1, b, J + b)
    found = np.asarray(skew.skew_rows(x_BHcbW))
    for i in range(b):
        np.testing.assert_array_equal(found[..., i, :], x_BHcbW[..., i, b - 1 - i :][..., :J])


CASE = Case(
    lambda a: skew.skew_rows(a["x_BHcbW"]),
    lambda a: skew.reference(a["x_BHcbW"]),
    {"x_BHcbW": np.random.default_rng(0).normal(size=(8, 2, 2, 3, 8))},
    (skew,),
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
