"""A line of plain text is an example of the tasks that read no more than texts."""

from types import SimpleNamespace

import pytest

from finetune.prediction import plain_texts
from pretrain.runtime.errors import UserError


def read(lines, field="texts", columns=()):
    blocks = plain_texts.read_blocks(lines, SimpleNamespace(plain_field=field), "-", columns)
    return [example for block in blocks for example in block.examples]


def test_a_line_is_an_example_and_tabs_part_its_texts():
    assert read(["One.\n", "A cab \tis here"]) == [
        {"texts": ["One."], "label": None, "where": "-, line 1"},
        {"texts": ["A cab", "is here"], "label": None, "where": "-, line 2"},
    ]
    (tagged,) = read(["A cab  is here\n"], "words")
    assert (tagged["words"], tagged["labels"]) == (["A", "cab", "is", "here"], None)
    assert len(read(f"{n}\n" for n in range(600))) == 600


def test_what_is_no_example_is_named():
    with pytest.raises(UserError, match=r"-, line 2: a text is empty"):
        read(["One.\n", "\n"])
    with pytest.raises(UserError, match="no example of this task"):
        read(["One."], "")
    with pytest.raises(UserError, match="-: there is no text to predict"):
        read([])


def test_a_line_has_as_many_texts_as_the_table_had():
    columns = ["question", "answer"]
    assert read(["a\tb"], columns=columns)[0]["texts"] == ["a", "b"]
    with pytest.raises(UserError, match=r"line 2 has 1 texts, .* 2: question, answer; tabs stand"):
        read(["a\tb", "a b"], columns=columns)
