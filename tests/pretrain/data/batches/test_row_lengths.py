"""A batch is cut to the least of a few lengths."""

import pytest

from pretrain.data.batches.row_lengths import choose_length, list_lengths


def test_lengths_are_those_below_the_longest_in_order():
    assert list_lengths((12, 0, 99, 8, 16), 16) == [8, 12, 16]
    assert list_lengths((), 16) == [16]


@pytest.mark.parametrize(("longest", "length"), [(1, 8), (8, 8), (9, 12), (13, 16), (16, 16)])
def test_the_least_length_that_holds_the_longest_row_is_chosen(longest, length):
    assert choose_length([8, 12, 16], longest) == length
