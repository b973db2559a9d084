"""Random tokens are ordinary ones, common ones more often."""

import numpy as np

from benchmarks.contest import synthetic_data, synthetic_rows


def test_tokens_are_ordinary_and_follow_zipfs_law():
    tokens = synthetic_data.draw_tokens(1000, 20_000)
    assert tokens.min() > max(synthetic_data.SPECIAL.values())
    assert tokens.max() < 1000
    assert (tokens < 100).mean() > 0.5


def test_rows_are_as_uneven_as_sentences_and_padded_at_their_ends():
    recipe = dict(model=dict(V=1000), task=dict(labels=["a", "b"]), seed=0)
    rows = synthetic_rows.draw_rows(recipe | dict(batches=dict(B=500, L=60)))
    lengths_B = rows["valid_BL"].sum(1)
    assert 18 < lengths_B.mean() < 22
    assert np.ptp(lengths_B) > 40
    np.testing.assert_array_equal(rows["valid_BL"], np.arange(60) < lengths_B[:, None])
    assert (rows["tokens_BL"][~rows["valid_BL"]] == 0).all()
    np.testing.assert_array_equal(rows["tokens_BL"][:, 0], 999 - rows["label_B"])
