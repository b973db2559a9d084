"""Byte-level BPE as GPT-2 uses it: any text comes back, and blanks belong to words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tokenizer_data import V, learn, pieces, published, starts


@pytest.fixture(scope="module")
def learned():
    return learn("byte_bpe")


@pytest.fixture(scope="module")
def gpt2():
    return published("byte_bpe", "gpt2")


@given(text=st.text(max_size=60))
def test_any_text_comes_back(learned, text):
    assert learned.decode(learned.encode([text])[0]) == text


ODD = [
    " ",
    "  two  blanks ",
    "\r\n\r\n\tx\n",
    "\0\x1f\x7f",
    "👩‍👩‍👧 ﷽ e\u0301",
    "<|endoftext|>",
    "\ufeff\ufffd",
]


@pytest.mark.parametrize("text", ODD)
def test_odd_text_comes_back(learned, gpt2, text):
    for tokenizer in (learned, gpt2):
        (ids,) = tokenizer.encode([text])
        assert tokenizer.decode(ids) == text
        assert tokenizer.special["eod"] not in ids


def test_the_last_piece_alone_is_special(learned):
    assert learned.special == {"eod": V["byte_bpe"] - 1}
    assert learned.decode([learned.special["eod"]]) == "<|endoftext|>"


def test_all_bytes_are_pieces(learned):
    assert sum(len(piece) == 1 for piece in learned.pieces) == 256


def test_words_start_with_a_blank_of_any_kind(learned):
    found = {piece for piece, start in starts(learned).items() if start}
    assert {"Ġ", "Ċ", "ĉ", "č", "<|endoftext|>"} <= found
    assert all(piece[0] in "ĠĊĉčċČ" or piece == "<|endoftext|>" for piece in found)
    assert any(len(piece) > 2 for piece in found)
    assert not found & {"a", "<", "."}


def test_the_published_vocabulary_gives_the_published_ids(gpt2):
    assert gpt2.special == {"eod": 50_256}
    assert gpt2.encode(["Hello world"])[0].tolist() == [15496, 995]
    assert gpt2.encode(["<|endoftext|>"])[0].tolist() == [27, 91, 437, 1659, 5239, 91, 29]


def test_the_published_vocabulary_cuts_words_as_gpt2_does(gpt2):
    assert pieces(gpt2, "I've  2 cats\n\nhere") == [
        "I",
        "'ve",
        "Ġ",
        "Ġ2",
        "Ġcats",
        "Ċ",
        "Ċ",
        "here",
    ]
