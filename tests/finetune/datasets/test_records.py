"""Cells become texts and a label, and numbers have to be finite."""

import pytest

from finetune.datasets import records
from pretrain.runtime.errors import UserError


def test_names_are_written_as_json_writes_them():
    assert [records.plain_name(x, "x") for x in (" a ", True, 1.0, 3)] == ["a", "true", "1.0", "3"]


@pytest.mark.parametrize("value", [True, "nan", "1e999", "word", None, 10**400])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(UserError, match="is not a number"):
        records.parse_number(value, "x")


def test_labels_to_skip_are_counted_before_they_are_checked():
    layout = records.Layout(("text",), "label", "", {"yes": "yes"}, False, ("-",), False)
    rows = [("line 1", {"text": " A ", "label": "yes"}), ("line 2", {"text": "B", "label": "-"})]
    read = records.examples(rows, layout, lambda row, where: row, strict=True)
    assert read.examples == [{"texts": ["A"], "label": "yes", "where": "line 1"}]
    assert read.notes == ["left out: rows of label '-': 1, the first at line 2"]
