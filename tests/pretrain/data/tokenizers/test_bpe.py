"""BPE as GPT-1 uses it: its clean-up, its words, and where they end."""

import string

import pytest

from pretrain.data.tokenizers.bpe import Tokenizer
from tests.support.tokenizer_data import TEXTS, V, pieces, published, starts


@pytest.fixture(scope="module")
def tokenizer(learned):
    return learned["bpe"]


@pytest.fixture(scope="module")
def gpt1():
    return published("bpe", "openai-gpt1")


def words(tokenizer, text):
    """Returns the words that the text is cut into, whatever their pieces."""
    return "".join(pieces(tokenizer, text)).split("</w>")[:-1]


@pytest.fixture(scope="module")
def everything():
    """A vocabulary of nothing but characters."""
    letters = [*string.ascii_lowercase, *string.digits, *string.punctuation, "é", "ç"]
    return Tokenizer(["<unk>", *letters, *(c + "</w>" for c in letters), "\n</w>"], [])


def test_unknown_comes_first_and_the_end_of_a_document_last(tokenizer):
    assert tokenizer.special == {"unk": 0, "eod": V["bpe"] - 1}
    assert tokenizer.pieces[-1] == "\n</w>"


def test_each_word_has_one_piece_that_ends_it(tokenizer):
    ends = {piece for piece, end in starts(tokenizer).items() if end}
    assert ends == {p for p in tokenizer.pieces if p.endswith("</w>")} | {"<unk>"}
    text = "Badan go, busto."
    (ids,) = tokenizer.encode([text])
    assert tokenizer.word_start_V[ids].sum() == 5
    assert len(ids) > 5


def test_what_is_encoded_decodes_to_its_words(tokenizer):
    for text in TEXTS[:20]:
        assert tokenizer.decode(tokenizer.encode([text])[0]) == text.lower().replace(".", " .")


def test_characters_never_seen_are_unknown_one_by_one(tokenizer):
    assert pieces(tokenizer, "β βγ") == ["<unk>"] * 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello\n\n  World", "hello world"),
        ("don’t I’m she'll can't", "do n't i 'm she 'll ca n't"),
        ("“Well—yes…” ´tis", '" well - yes ... " \' tis'),
        ("Mr. Fox, Dr. J. Hill. Stop.", "mr. fox , dr. j. hill . stop ."),
        ("the U.S. at 7:30, 3.14 o'clock", "the u.s. at 7:30 , 3.14 o'clock"),
        ("wait... no!!! -- (yes)", "wait ... no ! ! ! -- ( yes )"),
        ("cannot gonna canny dogs'", "can not gon na canny dogs '"),
        ("café cafe\u0301 Ça", "café café ça"),
    ],
)
def test_text_is_cut_into_the_words_of_gpt1(everything, text, expected):
    assert words(everything, text) == expected.split(" ")


def test_the_published_vocabulary_gives_whole_words(gpt1):
    assert gpt1.special == {"unk": 0, "eod": 40_477}
    assert gpt1.encode(["The the"])[0].tolist() == [481, 481]
    expected = ['"', "i", "do", "n't", "know", ",", "mr.", "fox", "...", '"']
    assert pieces(gpt1, "“I don’t know, Mr. Fox…”") == [f"{word}</w>" for word in expected]
