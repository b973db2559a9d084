"""Rows of a vocabulary begin as those of the same words, or as the mean of all."""

import numpy as np
import pytest

from pretrain.inference.continued_vocabulary import extend_rows, match_words

OLD_VD = np.array([[0.0, 1], [2, 3], [4, 8], [9, 9]], np.float32)  # the last is padding


@pytest.mark.parametrize("axis", [0, 1])
def test_more_rows_begin_as_the_mean_of_those_of_words(axis):
    rows = extend_rows(3, 2)
    placed = rows.place(OLD_VD if axis == 0 else OLD_VD.T, axis)
    expected = np.array([[0, 1], [2, 3], [4, 8], [2, 4], [2, 4]], np.float32)
    np.testing.assert_array_equal(placed if axis == 0 else placed.T, expected)
    assert placed.dtype == np.float32
    assert rows.describe() == "grown: 2 rows, the mean of the old"
    np.testing.assert_array_equal(rows.place(np.array([3.0, 6, 0, 1]), 0), [3, 6, 0, 3, 3])


def test_words_take_their_rows_along_wherever_they_stand():
    rows = match_words(["<UNK>", "a", "b"], ["<UNK>", "b", "new", "more"], 3)
    np.testing.assert_array_equal(rows.place(OLD_VD, 0), [[0, 1], [4, 8], [2, 4]])
    assert rows.describe() == ("matched by word: 2 of 3 rows restored, 1 are the mean of the old")


def test_rows_of_no_word_begin_as_the_mean():
    rows = match_words(["<UNK>", "a", "b"], ["<UNK>", "b"], 4)
    np.testing.assert_array_equal(rows.place(OLD_VD, 0), [[0, 1], [4, 8], [2, 4], [2, 4]])
