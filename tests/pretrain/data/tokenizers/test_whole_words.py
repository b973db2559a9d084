"""Words of a text become pieces behind a tokenizer's own, and all else is cut as before."""

import json

import numpy as np
import pytest

from pretrain.data.tokenizers import registry
from pretrain.runtime.errors import UserError
from tests.support.tokenizer_data import KINDS, ODD, TEXTS, learn, pieces

kinds = pytest.mark.parametrize("kind", KINDS)
# Two words are common enough to be added, whatever else of it is cut.
NEW = ["so Zyxwab Zyxwab Ζεύς, Zyxwab", "he Ζεύς 12345 12345 12345 12345"] * 4
TEXT = "He said Zyxwab, or  Ζεύς Zyxwab."


@pytest.fixture(scope="module")
def grown(learned):
    """One of each kind, by two words."""
    return {kind: learned[kind].add_words(iter(NEW), 2) for kind in KINDS if kind != "words"} | {
        "words": learned["words"].add_words(iter(NEW), 3)
    }


@kinds
def test_new_words_are_a_piece_each_behind_all_others(learned, grown, kind):
    old, new = learned[kind], grown[kind]
    assert new.pieces[: old.V] == old.pieces
    more = 3 if kind == "words" else 2
    assert new.V == len(new.pieces) == len(new.word_start_V) == old.V + more
    assert new.special == old.special
    assert new.word_start_V[old.V :].all()
    (ids,) = new.encode([TEXT])
    number = {new.decode([i]).strip().lower().replace("ύ", "υ"): i for i in range(old.V, new.V)}
    expected = [number[word] for word in ("zyxwab", "ζευς", "zyxwab")]
    assert [i for i in ids if i >= old.V] == expected
    if kind == "byte_bpe":  # the others lose blanks, and characters that they do not know
        assert new.decode(ids) == TEXT


@kinds
def test_text_without_new_words_is_cut_as_before(learned, grown, kind):
    texts = [*TEXTS, *ODD, "12345 zyxwa ζε"]
    texts = texts[:-1] if kind == "words" else texts  # of words, numbers are new ones
    for text, ids in zip(texts, grown[kind].encode(texts), strict=True):
        np.testing.assert_array_equal(ids, learned[kind].encode([text])[0])


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe"])
def test_a_longer_word_is_cut_as_before_it_had_a_new_beginning(learned, grown, kind):
    for text in ("a Zyxwabs", "Zyxwab", "a zyxwab"):
        if kind == "bpe" and text != "a Zyxwabs":  # lower case is one, and a blank no part of it
            continue
        np.testing.assert_array_equal(grown[kind].encode([text]), learned[kind].encode([text]))


def test_a_longer_word_may_begin_with_a_new_piece(grown):
    assert pieces(grown["wordpiece"], "Zyxwabs") == ["zyxwab", "##s"]
    assert pieces(grown["sentencepiece"], "Zyxwabs") == ["▁Zyxwab", "s"]


@kinds
def test_offsets_of_a_new_word_are_all_of_it(learned, grown, kind):
    tokenizer = grown[kind]
    (ids,), (offsets,) = tokenizer.encode([TEXT]), tokenizer.offsets([TEXT])
    np.testing.assert_array_equal(offsets.ids, ids)
    new = offsets.ids >= learned[kind].V
    spans = zip(offsets.starts[new], offsets.ends[new], strict=True)
    assert [TEXT[start:end] for start, end in spans] == ["Zyxwab", "Ζεύς", "Zyxwab"]
    assert (np.diff(offsets.starts) >= 0).all()


@kinds
def test_a_grown_tokenizer_is_saved_loaded_and_grown_again(grown, kind, tmp_path):
    grown[kind].save(tmp_path)
    loaded = registry.load(tmp_path)
    assert loaded == grown[kind]
    np.testing.assert_array_equal(loaded.encode([TEXT]), grown[kind].encode([TEXT]))
    again = loaded.add_words(["so vuvuv vuvuv Zyxwab"] * 9, 1)
    assert again.pieces == [*loaded.pieces, again.pieces[-1]]
    assert again.encode(["so vuvuv Ζεύς"])[0][-2] == loaded.V
    assert "vuvuv" in again.decode([loaded.V])


@kinds
def test_more_words_than_a_text_has_are_refused_with_their_number(learned, kind):
    with pytest.raises(UserError, match=r"tokens\.extend=9: the text has 1 words .* 1 at most"):
        learned[kind].add_words(["Zyxwab Zyxwab"] if kind != "byte_bpe" else [" Zyxwab"], 9)


def test_words_behind_those_that_count_as_known_come_behind_new_ones():
    words = learn("words", ["a a a b b c d"])
    grown = words.add_words(["d d z c d z"], 2, known=5)
    assert grown.pieces[3:] == ["a", "b", "d", "z", "c"]
    assert words.add_words(["d z z"], 1).pieces[3:] == ["a", "b", "c", "d", "z"]
    grown = words.add_words(["y z z z x x"], 1, known=5, rest=True)
    assert grown.pieces[3:] == ["a", "b", "z", "c", "d", "x", "y"]


def test_a_vocabulary_that_ends_in_pieces_added_by_hand_is_not_extended(learned, tmp_path):
    learned["wordpiece"].save(tmp_path)
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base": 200}))
    (tmp_path / "sha256.json").unlink()
    with pytest.raises(UserError, match="ends in 60 pieces that no word is cut into"):
        registry.load(tmp_path).add_words(NEW, 1)


def test_files_that_do_not_say_which_pieces_are_words_are_refused(grown, tmp_path):
    grown["byte_bpe"].save(tmp_path)
    with pytest.raises(UserError, match=r"set tokens\.name=saved and tokens\.folder="):
        registry.learn(iter(()), name="byte_bpe", V=422, model=str(tmp_path))
