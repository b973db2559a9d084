"""A study is a row for each way that its section lists."""

import numpy as np
from ml_collections import ConfigDict

from pretrain.diagnostics.studies import study_deep


def test_the_deep_study_has_a_row_for_each_way_to_build_a_stack():
    section = dict(activations=("tanh", "relu"), inits=("xavier",), N=2, D=3, B=2)
    rows = list(study_deep(ConfigDict(dict(seed=0, deep=section))))
    labels = [
        f"{activation} xavier{ending}"
        for activation in ("tanh", "relu")
        for ending in ("", " norm", " residual", " residual norm")
    ]
    assert [row.label for row in rows] == labels
    for row in rows:
        assert row.numbers["ratio"] == row.numbers["lowest"] / row.numbers["top"]
        np.testing.assert_array_equal(row.curve, [row.numbers["lowest"], row.numbers["top"]])
