"""A job's arrays come back by split."""

import numpy as np

from benchmarks.peers.job_arrays import read_splits


def test_arrays_come_back_by_split_and_field(tmp_path):
    arrays = {"dev/label_B": np.arange(3), "dev/tokens_BL": np.ones((3, 2)), "rows_VD": np.eye(2)}
    np.savez(tmp_path / "a.npz", **arrays)
    splits = read_splits(str(tmp_path / "a.npz"))
    assert {split: set(x) for split, x in splits.items()} == {
        "dev": {"label_B", "tokens_BL"},
        "": {"rows_VD"},
    }
    np.testing.assert_array_equal(splits["dev"]["label_B"], arrays["dev/label_B"])
