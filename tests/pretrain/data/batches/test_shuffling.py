"""An order is a function of its key alone."""

import numpy as np

from pretrain.data.batches.shuffling import shuffle_array


def test_an_order_is_a_permutation_that_its_key_alone_decides():
    array = np.arange(100, 200)
    first = shuffle_array(array, 3, 1)
    np.testing.assert_array_equal(first, shuffle_array(array.copy(), 3, 1))
    np.testing.assert_array_equal(np.sort(first), array)
    for other in (shuffle_array(array, 3, 2), shuffle_array(array, 1, 3), array):
        assert not np.array_equal(first, other)
