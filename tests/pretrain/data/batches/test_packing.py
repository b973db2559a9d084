"""Packing: every example in one row, which it fits, and as few rows as best fit needs."""

import numpy as np
import pytest

from pretrain.data.batches.packing import pack_examples


def pack_plainly(sizes, room, most):
    """Counts the rows of best fit, one example at a time."""
    rows = []
    for size in sorted(sizes, reverse=True):
        fitting = [row for row in rows if sum(row) + size <= room and len(row) < most]
        if fitting:
            max(fitting, key=sum).append(size)
        else:
            rows.append([size])
    return len(rows)


@pytest.mark.parametrize("most", [1, 2, 4, 9])
@pytest.mark.parametrize("least", [1, 15])
def test_each_example_is_in_one_row_that_it_fits(most, least):
    sizes_N = np.random.default_rng(most).integers(least, 41, 300)
    rows_RO = pack_examples(sizes_N, 40, most)
    there_RO = rows_RO >= 0
    assert sorted(rows_RO[there_RO].tolist()) == list(range(300))
    assert rows_RO.shape == (pack_plainly(sizes_N.tolist(), 40, most), most)
    assert (np.where(there_RO, sizes_N[rows_RO], 0).sum(1) <= 40).all()
    assert (np.diff(there_RO.astype(int), axis=1) <= 0).all()
    assert (np.diff(rows_RO[:, 0]) > 0).all()
