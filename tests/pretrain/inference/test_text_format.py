"""Every text format frames texts by itself, and is found by its name or a reader's own."""

import sys

import pytest

from modules import plugins
from modules.layers import pooling
from pretrain.data.tokenizers import words
from pretrain.inference.text_format import (
    FOLDER,
    TextFormat,
    check_direction,
    format_name,
    load_format,
)
from pretrain.runtime.errors import UserError

FORMATS = plugins.names(FOLDER, "FORMAT")


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_consistent_with_itself(name):
    made = load_format(name)
    special = {mark: number for number, mark in enumerate(made.marks)}
    assert set(made.new_tokens) <= set(special)
    assert made.pool in pooling.KINDS
    assert made.segments == 0 or 0 <= made.last_segment < made.segments
    before, after, segments = made.frame(special)
    assert len(after) == len(segments)
    assert not {*before, *after} & {special[mark] for mark in made.new_tokens}


def test_a_format_of_the_reader_s_own_is_found_by_a_dotted_name(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "roberta.py").write_text(
        "from pretrain.inference.text_format import TextFormat\n"
        "FORMAT = TextFormat(before=('bos',), between=('eos', 'eos'), after=('eos',))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert load_format("package.roberta").between == ("eos", "eos")
    monkeypatch.delitem(sys.modules, "package.roberta")


def test_unknown_names_and_missing_marks_are_refused():
    with pytest.raises(
        UserError,
        match=r"^text_format: .* bert, bert_three, elmo, gpt, roberta, ulmfit, ulmfit_backward",
    ):
        load_format("nsp")
    with pytest.raises(UserError, match="name how this model frames texts"):
        load_format("")
    with pytest.raises(UserError, match=r"config\.json has no text_format"):
        format_name({"model": {}})
    with pytest.raises(UserError, match="padding='middle'"):
        TextFormat(padding="middle")
    with pytest.raises(UserError, match="tags need a text_format that reads from left to right"):
        TextFormat(backward=True).require_forward("tags")
    with pytest.raises(UserError, match="<cls>, but the tokenizer has only"):
        load_format("bert").frame(words.Tokenizer(list(words.MARKS), "blank").special)


@pytest.mark.parametrize("backward", [False, True])
def test_a_language_model_of_one_direction_is_framed_in_that_direction(backward):
    fits, other = sorted(("ulmfit", "ulmfit_backward"), reverse=backward)
    check_direction(fits, {"backward": backward}, "it")
    check_direction(other, {}, "it")  # no language model of one direction
    with pytest.raises(UserError, match=f"it is trained with batches.backward={backward}"):
        check_direction(other, {"backward": backward}, "it")
