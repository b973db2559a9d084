"""Rows are grouped by example and taken apart again."""

import jax
import numpy as np

from finetune.inputs.options import flatten_options, group_options


def test_flattening_is_the_inverse_of_grouping():
    tokens_BL = np.arange(24).reshape(6, 4)
    rows = {"tokens_BL": tokens_BL, "valid_BL": tokens_BL > 3, "segments_BL": tokens_BL % 2}
    grouped = group_options(rows, 3)
    assert grouped["tokens_BOL"].shape == (2, 3, 4)
    np.testing.assert_array_equal(grouped["tokens_BOL"][1, 2], tokens_BL[5])
    label_B = {"label_B": np.array([1, 0])}
    flat, options = flatten_options(grouped | label_B)
    assert options == 3
    jax.tree.map(np.testing.assert_array_equal, flat, rows | label_B)


def test_one_row_an_example_stays_as_it_is():
    rows = {"tokens_BLW": np.ones((2, 3, 4)), "valid_BL": np.ones((2, 3), bool)}
    flat, options = flatten_options(rows)
    assert options == 1
    jax.tree.map(np.testing.assert_array_equal, flat, rows)
