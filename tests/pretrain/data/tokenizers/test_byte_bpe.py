"""Byte-level BPE as GPT-2 uses it: any text comes back, and blanks belong to words."""

import random

import pytest

from tests.support.tokenizer_data import V, pieces, published, starts


@pytest.fixture(scope="module")
def tokenizer(learned):
    return learned["byte_bpe"]


@pytest.fixture(scope="module")
def gpt2():
    return published("byte_bpe", "gpt2")


def test_any_text_comes_back(tokenizer):
    rng = random.Random(0)
    everything = [chr(c) for c in range(0x11_0000) if not 0xD800 <= c < 0xE000]  # no surrogates
    for characters in (everything, everything[:0x3000], everything[:0x80]):
        texts = ["".join(rng.choices(characters, k=rng.randrange(60))) for _ in range(300)]
        assert [tokenizer.decode(ids) for ids in tokenizer.encode(texts)] == texts


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
def test_odd_text_comes_back(tokenizer, gpt2, text):
    for each in (tokenizer, gpt2):
        (ids,) = each.encode([text])
        assert each.decode(ids) == text
        assert each.special["eod"] not in ids


def test_the_last_piece_alone_is_special_and_all_bytes_are_pieces(tokenizer):
    assert tokenizer.special == {"eod": V["byte_bpe"] - 1}
    assert tokenizer.decode([tokenizer.special["eod"]]) == "<|endoftext|>"
    assert sum(len(piece) == 1 for piece in tokenizer.pieces) == 256


def test_words_start_with_a_blank_of_any_kind(tokenizer):
    begins = {piece for piece, is_start in starts(tokenizer).items() if is_start}
    assert {"Ġ", "Ċ", "ĉ", "č", "<|endoftext|>"} <= begins
    assert all(piece[0] in "ĠĊĉčċČ" or piece == "<|endoftext|>" for piece in begins)
    assert any(len(piece) > 2 for piece in begins)
    assert not begins & {"a", "<", "."}


def test_the_published_vocabulary_gives_the_published_ids(gpt2):
    assert gpt2.special == {"eod": 50_256}
    assert gpt2.encode(["Hello world"])[0].tolist() == [15496, 995]
    assert gpt2.encode(["<|endoftext|>"])[0].tolist() == [27, 91, 437, 1659, 5239, 91, 29]


def test_the_published_vocabulary_cuts_words_as_gpt2_does(gpt2):
    assert " ".join(pieces(gpt2, "I've  2 cats\n\nhere")) == "I 've Ġ Ġ2 Ġcats Ċ Ċ here"
