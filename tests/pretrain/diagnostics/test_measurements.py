"""A measurement as a line of a table and of JSON."""

import json

import numpy as np

from pretrain.diagnostics.measurements import Row, format_row, to_line

ROW = Row("decay", "lstm", {"slope": -0.25, "last": np.nan}, np.array([1.0, np.inf]))


def test_a_study_s_first_row_stands_under_its_heading():
    heading, first = format_row(ROW, is_first=True).split("\n")
    assert heading.split() == ["decay", "slope", "last"]
    assert first.split() == ["lstm", "-0.25", "nan"]
    assert format_row(ROW, is_first=False) == first


def test_a_line_is_strict_json_with_null_for_what_is_not_finite():
    line = json.loads(json.dumps(to_line(ROW), allow_nan=False))
    assert line == dict(study="decay", label="lstm", slope=-0.25, last=None, curve=[1.0, None])
