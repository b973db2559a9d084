"""Choices keep their order, or their line is named."""

import pytest

from pretrain.runtime.errors import UserError
from tests.support.dataset_files import read_written


def test_choices_keep_their_order_also_when_lettered(tmp_path):
    one = {"query": "He ran, so", "choices": ["he won.", "he sat."], "gold": 1}
    assert (
        read_written(tmp_path, "multiple_choice", one).examples[0].items()
        >= {"texts": ["He ran, so"], "choices": ["he won.", "he sat."], "label": 1}.items()
    )
    assert read_written(tmp_path, "multiple_choice", one, gold="").examples[0]["label"] is None
    spelt = {
        "query": "Where?\nChoices:\nA. in a. b\nB. out\nAnswer:",
        "choices": ["A", "B"],
        "gold": 0,
    }
    example = read_written(tmp_path, "multiple_choice", spelt, lettered=True).examples[0]
    assert (example["texts"], example["choices"]) == (["Where?"], ["in a. b", "out"])


@pytest.mark.parametrize(
    ("change", "fields", "message"),
    [
        ({"gold": 2}, {}, "a.txt, line 1: the right choice is 2, of 0 to 1"),
        ({"gold": True}, {}, "line 1: 'gold' should be a whole number"),
        ({"choices": ["a"]}, {}, "line 1: 1 choices"),
        ({"choices": ["a", 3]}, {}, "line 1: choice 1 should be text"),
        ({"query": ""}, {}, "line 1: 'query' is empty"),
        ({}, {"lettered": True}, "line 1: lettered=True, but the text does not spell out"),
    ],
)
def test_a_bad_choice_is_named(tmp_path, change, fields, message):
    good = {"query": "Q", "choices": ["a", "b"], "gold": 0}
    with pytest.raises(UserError, match=message):
        read_written(tmp_path, "multiple_choice", good | change, **fields)
