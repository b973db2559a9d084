"""Each row of a block is rolled by its own number of places, and back."""

import numpy as np
import pytest

from modules.kernels import gpu_exchange
from tests.support.arrays import draw

X = draw(64, 64)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_are_rolled_by_their_place(axis):
    expected = np.zeros_like(X)
    for i in range(64):
        for n in range(64):
            place = (i, n) if axis == 1 else (n, i)
            source = (n + 63 - i) % 64
            expected[place] = X[(i, source) if axis == 1 else (source, i)]
    np.testing.assert_array_equal(gpu_exchange.reference(X, axis), expected)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_way_back_undoes_it(axis):
    rolled = gpu_exchange.reference(X, axis)
    np.testing.assert_array_equal(gpu_exchange.reference(rolled, axis, is_back=True), X)
