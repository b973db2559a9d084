"""Random tokens are ordinary ones, common ones more often."""

from benchmarks.contest import synthetic_data


def test_tokens_are_ordinary_and_follow_zipfs_law():
    tokens = synthetic_data.draw_tokens(1000, 20_000)
    assert tokens.min() > max(synthetic_data.SPECIAL.values())
    assert tokens.max() < 1000
    assert (tokens < 100).mean() > 0.5
