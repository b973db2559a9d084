"""XLNet's pieces from a tokenizer.json, whose special pieces no text becomes."""

import json

import numpy as np
import pytest
import tokenizers as library
from tokenizers import decoders, models, pre_tokenizers

from pretrain.data.tokenizers import registry, unigram
from pretrain.runtime.errors import UserError

SPECIAL = ["<unk>", "<cls>", "<sep>"]


@pytest.fixture
def path(tmp_path):
    """A tokenizer.json of letters and a word, as Hugging Face saves it."""
    scores = [(x, 0.0) for x in SPECIAL] + [("▁ab", -1.0), ("▁", -2.0)]
    scores += [(x, -3.0) for x in "ab<>cls"]
    theirs = library.Tokenizer(models.Unigram(scores, 0))
    theirs.pre_tokenizer = pre_tokenizers.Metaspace()
    theirs.decoder = decoders.Metaspace()
    theirs.add_special_tokens(SPECIAL)
    theirs.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.fixture
def tokenizer(path):
    return registry.learn(iter(()), name="unigram", model=str(path))


def test_ids_and_special_pieces_are_those_of_the_file(tokenizer):
    assert tokenizer.special == {"unk": 0, "cls": 1, "sep": 2}
    (ids,) = tokenizer.encode(["ab ba"])
    assert [tokenizer.pieces[i] for i in ids] == ["▁ab", "▁", "b", "a"]
    assert tokenizer.decode(ids) == "ab ba"


def test_no_text_is_a_special_piece(tokenizer):
    (ids,) = tokenizer.encode(["<cls>"])
    assert len(ids) > 3
    assert not set(ids.tolist()) & set(tokenizer.special.values())


def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "a")
    again = registry.load(tmp_path / "a")
    assert again == tokenizer
    np.testing.assert_array_equal(again.encode(["ab"])[0], tokenizer.encode(["ab"])[0])


def test_a_file_of_another_kind_is_refused(path):
    content = json.loads(path.read_text())
    content["model"]["vocab"] = [x for x in content["model"]["vocab"] if x[0] != "<sep>"]
    content["added_tokens"] = []
    for text in ("{", "[]", json.dumps(content)):
        with pytest.raises(UserError, match=r"t\.json: is no "):
            unigram.Tokenizer.of(text, "t.json")


def test_new_words_stand_behind_the_models_pieces(tokenizer, tmp_path):
    grown = tokenizer.add_words(["ab abba, abba bab. ba-ba 12"], 2)
    assert grown.pieces == [*tokenizer.pieces, "▁abba", "▁bab"]
    (ids,) = grown.encode(["bab ab abba abab"])
    assert [grown.pieces[i] for i in ids] == ["▁bab", "▁ab", "▁abba", "▁ab", "a", "b"]
    grown.save(tmp_path / "a")
    assert registry.load(tmp_path / "a") == grown
    with pytest.raises(UserError, match="the text has 1 words that the vocabulary lacks"):
        tokenizer.add_words(["abba"], 2)


def test_pieces_that_were_added_to_a_model_end_its_vocabulary(path):
    theirs = library.Tokenizer.from_file(str(path))
    theirs.add_special_tokens(["<more>"])
    with pytest.raises(UserError, match="ends in 1 pieces that were added to its model"):
        unigram.Tokenizer.of(theirs.to_str(), "t.json").add_words(["abba"], 1)
