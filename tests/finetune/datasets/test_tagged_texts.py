"""Texts come with their class and a tag for each of their words, or their line is named."""

import pytest

from modules import plugins
from pretrain.runtime.errors import UserError
from tests.support.dataset_files import read_written

ROW = dict(query="红 书", title="书", label="1", query_tags="O B", title_tags="B")


def read(folder, **fields):
    rows = ROW | fields.pop("row", {})
    return read_written(folder, "tagged_texts", rows, "a.jsonl", **fields).examples[0]


def test_the_words_of_both_texts_follow_each_other(tmp_path):
    example = read(tmp_path)
    assert (example["texts"], example["label"]) == (["红 书", "书"], "1")
    assert (example["words"], example["labels"]) == (["红", "书", "书"], ["O", "B", "B"])
    assert example["counts"] == [2, 1]
    words = read(tmp_path, units="words", row=dict(query="red book", title="books"))
    assert words["words"] == ["red", "book", "books"]
    bare = read(tmp_path, tags=(), label="")
    assert (bare["labels"], bare["label"], bare["counts"]) == (None, None, [2, 1])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(row=dict(query="书")), "line 1: 1 characters with 2 tags"),
        (dict(units="letters"), "units='letters' is none of characters, words"),
        (dict(tags=("query_tags",)), "name a column for each of 2 texts"),
    ],
)
def test_tags_of_other_words_are_refused(tmp_path, fields, message):
    with pytest.raises(UserError, match=message):
        read(tmp_path, **fields)


def test_a_field_that_no_table_has_is_refused(tmp_path):
    with pytest.raises(plugins.FieldError, match="labl"):
        read(tmp_path, labl="label")
