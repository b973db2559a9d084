"""Examples are texts, tuples of texts, rows of a table, or dicts; others are named."""

import math
from types import SimpleNamespace

import pytest

from pretrain.runtime.errors import UserError
from quartet.examples import list_examples

TEXTS = SimpleNamespace(plain_field="texts", example_fields=())
WORDS = SimpleNamespace(plain_field="words", example_fields=())
SPANS = SimpleNamespace(plain_field="", example_fields=("question", "context"))


def texts(examples, columns=()):
    return [x["texts"] for x in list_examples(examples, TEXTS, columns)]


def test_an_example_is_a_text_or_a_tuple_of_texts():
    assert texts("a\tb") == [["a\tb"]]
    assert texts(["a", ("a", "b")]) == [["a"], ["a", "b"]]
    assert texts([]) == []


def test_an_example_is_a_dict_or_a_row_of_the_table():
    assert texts({"texts": ["a", "b"], "label": "yes"}) == [["a", "b"]]
    assert texts({"texts": "a"}) == [["a"]]
    row = {"review": "a", "title": "b", "stars": 3}
    assert texts([row, ("c", "d")], ["title", "review"]) == [["b", "a"], ["c", "d"]]


def test_words_of_a_tagger_are_split_or_given():
    examples = list_examples(["the state", ("the", "state"), {"words": "the state"}], WORDS)
    assert [x["words"] for x in examples] == [["the", "state"]] * 3


def test_labels_are_left_out_and_places_numbered():
    (example,) = list_examples({"texts": ["a"], "label": "none of these"}, TEXTS)
    assert (example["label"], example["where"]) == (None, "example 0")
    (example,) = list_examples({"question": "who?", "context": "I."}, SPANS)
    assert (example["id"], example["answers"], example["impossible"]) == ("0", [], False)


@pytest.mark.parametrize(
    ("examples", "data", "columns", "named"),
    [
        (3, TEXTS, (), r"predict\(\.\.\.\) takes examples.* was given 3 \(int\)"),
        (None, TEXTS, (), "was given None"),
        (["a", 3], TEXTS, (), r"example 1 is 3 \(int\): it is to be a text, a tuple"),
        ([""], TEXTS, (), "example 0: it is empty"),
        (["\ud800"], TEXTS, (), "example 0 is no text from character 0"),
        ([("a", 3)], TEXTS, (), "example 0: one of 'texts' should be text, and is 3"),
        ([()], TEXTS, (), r"'texts' should be a list of texts, and is \[\]"),
        ({"text": "a"}, TEXTS, (), "example 0 has no 'texts', but 'text'"),
        ({"text": "a"}, TEXTS, ["review"], "no 'texts', nor the table's 'review', but 'text'"),
        ({"review": 3}, TEXTS, ["review"], "'review' should be text, and is 3"),
        ({"texts": 3}, TEXTS, (), "'texts' should be a list of texts, and is 3"),
        ({}, TEXTS, (), "but nothing"),
        (
            ("a", "b"),
            TEXTS,
            ["left", "right"],
            "has 1 texts, and this run's task has 2: left, right",
        ),
        ("who?", SPANS, (), "an example of this task is a dict with 'context', 'question'"),
        ({"question": "who?"}, SPANS, (), "has no 'context', but 'question'"),
        ({"question": ["who?"], "context": "I."}, SPANS, (), "'question' should be text"),
    ],
)
def test_what_is_no_example_is_named_by_its_number(examples, data, columns, named):
    with pytest.raises(UserError, match=named):
        list_examples(examples, data, columns)


def test_rows_of_a_frame_are_examples():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"review": ["a", "b"], "stars": [3, 4]}, index=[7, 8])
    assert texts(frame, ["review"]) == [["a"], ["b"]]
    assert texts([row for _, row in frame.iterrows()], ["review"]) == [["a"], ["b"]]
    assert texts(frame["review"], ["review"]) == [["a"], ["b"]]
    with pytest.raises(UserError, match="no 'texts', nor the table's 'text', but 'review', 'stars"):
        texts(frame, ["text"])
    with pytest.raises(UserError, match=r"a row of a frame: give it as row\.to_dict\(\)"):
        texts(frame.iloc[0], ["review"])


@pytest.mark.parametrize("gap", [math.nan, None])
def test_an_empty_cell_of_a_frame_is_named_with_what_to_do(gap):
    rows = [{"body": "a"}, {"body": gap}]
    with pytest.raises(UserError, match=r"example 1: 'body' is empty, .*; rows .* by \.dropna\(\)"):
        list_examples(rows, TEXTS, ("body",))
