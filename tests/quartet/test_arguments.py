"""What a method is given is looked at before any work, and named in a sentence."""

import numpy as np
import pytest

from pretrain.runtime.errors import UserError
from quartet.arguments import check_kind, check_options, list_items, list_texts


@pytest.mark.parametrize("texts", ["a", ["a"], ("a",), np.array(["a"]), iter(["a"]), {"a"}])
def test_texts_come_as_one_or_in_anything_that_is_iterable(texts):
    assert list_texts("embed(...)", texts) == ["a"]


def test_no_texts_are_an_empty_list():
    assert list_texts("embed(...)", []) == []


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        (3, r"was given 3 \(int\)"),
        (None, r"was given None \(NoneType\)"),
        (b"bytes", r"was given b'bytes' \(bytes\)"),
        (np.array(3), r"was given array\(3\) \(ndarray\)"),
        (["a", 3], r"item 1 is 3 \(int\)$"),
        (["a", float("nan")], r"item 1 is nan \(float\); .* left out by \.dropna\(\)"),
        ({"texts": "a"}, r"item 0 is \{'texts': 'a'\} \(dict\)"),
        ("a\ud800", "it is no text from character 1 on"),
        (["a", "\ud800"], "item 1 is no text from character 0 on"),
    ],
)
def test_what_is_no_text_is_named_with_the_call(texts, named):
    with pytest.raises(UserError, match=rf"^embed\(\.\.\.\).*{named}"):
        list_texts("embed(...)", texts)


def test_a_frame_is_refused_with_the_column_to_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a"], "label": ["b"]})
    assert list_texts("embed(...)", frame["text"]) == ["a"]
    with pytest.raises(UserError, match=r"name the column, as frame\['text'\]; it has text, label"):
        list_texts("embed(...)", frame)


def test_a_dict_is_one_item():
    assert list_items("predict(...)", {"texts": ["a"]}, "examples") == [{"texts": ["a"]}]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, int), (True, float), (1.0, int), ("1", int), (1, bool), (None, str), (0, str)],
)
def test_values_of_another_kind_are_refused(value, kind):
    with pytest.raises(UserError, match=r"^f\(x=\.\.\.\) is to be .*, and is "):
        check_kind("f(x=...)", value, kind)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(1, int), (np.int64(1), int), (1, float), (np.float32(1), float), (True, bool)],
)
def test_values_of_the_kind_pass(value, kind):
    check_kind("f(x=...)", value, kind)


def test_what_is_taken_by_keyword_alone_is_checked_by_its_annotation():
    @check_options
    def fill(texts: str, *, top: int = 5, label: str | int = "") -> tuple:
        return texts, top, label

    assert fill("a", top=3, label=2) == ("a", 3, 2)
    with pytest.raises(UserError, match=r"fill\(top=\.\.\.\) is to be a whole number, and is '3'"):
        fill("a", top="3")
