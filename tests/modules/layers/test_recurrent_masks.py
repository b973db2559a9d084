"""Masks as layers that read word by word understand them."""

import numpy as np
import pytest

from modules.layers.recurrent_masks import group_starts, refuse_mask, valid_positions
from modules.masks import Mask


@pytest.mark.parametrize("Z", [1, 2])
def test_one_direction_reads_causal_masks_and_two_the_others(Z):
    refusals = {is_causal: refuse_mask(Mask(is_causal=is_causal), Z) for is_causal in (True, False)}
    assert [is_causal for is_causal, reason in refusals.items() if not reason] == [Z == 1]
    assert "not window" in refuse_mask(Mask(is_causal=True, window=3), Z)


def test_text_is_where_it_is_valid_and_within_its_length():
    valid_BL = np.array([[1, 0, 1, 1], [1, 1, 1, 1]], bool)
    mask = Mask(valid_BL=valid_BL, lengths_B=np.array([3, 1]))
    np.testing.assert_array_equal(valid_positions(mask, 2, 4), [[1, 0, 1, 0], [1, 0, 0, 0]])
    assert np.all(valid_positions(Mask(), 2, 4))


def test_a_group_starts_where_the_number_changes_but_not_group_0():
    starts_BL = group_starts(np.array([[0, 0, 1, 1, 2], [3, 3, 4, 4, 4]]))
    np.testing.assert_array_equal(starts_BL, [[0, 0, 1, 0, 1], [1, 0, 1, 0, 0]])
    assert group_starts(None) is None
