"""A unigram model's new words: the commonest that stand alone, scored as their pieces were."""

import pytest

from pretrain.data.tokenizers.unigram_words import BONUS, UNKNOWN_PENALTY, find_new_words

PIECES = ["<unk>", "▁ab", "▁", "a", "b"]
SCORES = [0.0, -1.0, -2.0, -3.0, -4.0]


def cut(word):
    return [2, *({"a": 3, "b": 4}.get(x, 0) for x in word)] if word != "ab" else [1]


def find(text, most):
    return find_new_words(["▁" + text.replace(" ", "▁")], most, PIECES, SCORES, cut, 0)


def test_words_are_whole_have_letters_and_are_commonest_first():
    text = "bb, bb ba ba ba ab ab ab ab a-b b'a 12 12 12 12 (aa ba."
    assert [word for word, _ in find(text, 2)] == ["▁ba", "▁bb"]


def test_a_word_scores_a_little_above_its_pieces():
    assert find("ba", 1) == [("▁ba", pytest.approx(-9 + 3 * BONUS))]
    assert find("bé", 1) == [("▁bé", pytest.approx(-2 - 4 - 4 - UNKNOWN_PENALTY + 3 * BONUS))]
