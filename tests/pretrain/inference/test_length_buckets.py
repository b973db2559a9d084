"""Rows are padded to few lengths."""

import numpy as np
import pytest

from pretrain.inference import length_buckets


@pytest.mark.parametrize("longest", [8, 32, 100, 512])
def test_rows_are_padded_by_a_quarter_at_most_and_to_few_lengths(longest):
    lengths = length_buckets.list_lengths(longest)
    assert len(lengths) <= 4 * np.log2(longest / 8) + 2
    for n in range(8, longest + 1):
        assert n <= next(L for L in lengths if n <= L) <= 1.25 * n
