"""Characters: a word is the bytes of its UTF-8 between two marks, as ELMo's own code spells it."""

import numpy as np
import pytest

from pretrain.data.tokenizers import registry
from pretrain.data.tokenizers.character_ids import Table, get_table, spell_words
from pretrain.runtime.errors import UserError
from tests.support import corpora
from tests.support.tokenizer_data import spell_word


@pytest.mark.parametrize(
    ("word", "ids"),
    [
        ("ab", [258, 97, 98, 259, 260, 260, 260, 260]),
        ("<S>", [258, 256, 259, 260, 260, 260, 260, 260]),
        ("</S>", [258, 257, 259, 260, 260, 260, 260, 260]),
        ("é", [258, 195, 169, 259, 260, 260, 260, 260]),
        ("abcdef", [258, 97, 98, 99, 100, 101, 102, 259]),
        ("abcdefg", [258, 97, 98, 99, 100, 101, 102, 259]),
        ("abcdeé", [258, 97, 98, 99, 100, 101, 195, 259]),
        ("", [258, 259, 260, 260, 260, 260, 260, 260]),
    ],
)
def test_a_word_is_bow_its_first_bytes_eow_and_padding(word, ids):
    assert spell_words([word], W=8).tolist() == [ids]


@pytest.mark.parametrize("W", [3, 8, 50])
def test_many_words_at_once_are_as_each_alone(W):
    words = [*corpora.WORDS, "<S>", "naïve", "北京" * 9, "x" * 48, "y" * 49, "</S>", "", "\0"]
    ids_nW = spell_words(words, W)
    assert ids_nW.tolist() == [spell_word(word, W) for word in words]
    assert ids_nW.dtype == np.uint16
    assert spell_words([], W).shape == (0, W)


def test_a_word_without_room_is_refused():
    with pytest.raises(UserError, match="characters=2: "):
        spell_words(["a"], W=2)
    with pytest.raises(UserError, match="characters=1: "):
        Table(registry.learn(iter(["a"]), "words"), 1)


def test_a_table_has_marks_by_id_and_words_by_spelling():
    tokenizer = registry.learn(iter(["to be or not to be"]), "words")
    ids_VW = Table(tokenizer, 9).characters_VW
    assert ids_VW.tolist() == [spell_word(word, 9) for word in tokenizer.pieces]
    tokenizer.pieces[:2] = ["be", "not"]
    np.testing.assert_array_equal(Table(tokenizer, 9).characters_VW, ids_VW)


def test_a_table_is_computed_once_for_each_tokenizer_and_width():
    one, two = (registry.learn(iter([text]), "words") for text in ("a b", "c d e"))
    assert get_table(one, 9).characters_VW is get_table(one, 9).characters_VW
    assert get_table(one, 8).characters_VW.shape == (5, 8)
    assert get_table(two, 9).characters_VW.shape == (6, 9)
