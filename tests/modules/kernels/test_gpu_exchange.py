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


def test_two_blocks_are_cut_where_a_row_of_distances_begins():
    low, high = draw(64, 64, seed=1), draw(64, 64, seed=2)
    found, both = gpu_exchange.reference_of_two(low, high), np.concatenate([low, high], 1)
    for i in range(64):
        np.testing.assert_array_equal(found[i], both[i, 63 - i : 127 - i])
    # Rolled back, the numbers fill their blocks again, but for the corners that were left out.
    back = gpu_exchange.reference(found, 1, is_back=True)
    i, n = np.mgrid[:64, :64]
    np.testing.assert_array_equal(back, np.where(i + n >= 63, low, high))
