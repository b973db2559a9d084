"""Offsets of tokens: the same ids, and each where its characters are in the text as given."""

import numpy as np
import pytest

from tests.support.tokenizer_data import KINDS, ODD, TEXTS, keep_letters, learn, published

ALL = [*TEXTS[:40], *ODD]
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def tokenizers():
    return {kind: learn(kind, [*TEXTS, *ODD[2:] * 3]) for kind in KINDS}


@kinds
def test_the_ids_are_those_of_encode(tokenizers, kind):
    offsets = tokenizers[kind].offsets(ALL)
    for ids, (same_ids, starts, ends) in zip(tokenizers[kind].encode(ALL), offsets, strict=True):
        np.testing.assert_array_equal(same_ids, ids)
        assert len(starts) == len(ends) == len(ids)


@kinds
def test_spans_are_ordered_and_leave_no_letter_out(tokenizers, kind):
    for text, (_, starts, ends) in zip(ALL, tokenizers[kind].offsets(ALL), strict=True):
        assert (starts <= ends).all()
        assert (np.diff(starts) >= 0).all()
        assert (np.diff(ends) >= 0).all()
        is_covered = np.zeros(len(text), bool)
        for start, end in zip(starts, ends, strict=True):
            is_covered[start:end] = True
            assert not text[start:end][:1].isspace()
        assert not [c for c, seen in zip(text, is_covered, strict=True) if c.isalnum() and not seen]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte_bpe"])
def test_a_token_stands_where_its_letters_are(tokenizers, kind):
    tokenizer = tokenizers[kind]
    for text, offsets in zip(ALL, tokenizer.offsets(ALL), strict=True):
        for i, start, end in zip(*offsets, strict=True):
            piece = tokenizer.pieces[i].removeprefix("##").removesuffix("</w>")
            letters, there = keep_letters(piece), keep_letters(text[start:end])
            if i != tokenizer.special["unk"]:
                # A few characters are several to a tokenizer: "½", "ﬁ".
                assert letters == there or (end - start == 1 and letters in there)


def test_the_bytes_of_one_character_stand_all_where_it_is(learned):
    ((_, starts, ends),) = learned["byte_bpe"].offsets(["a 北"])
    assert (starts[-3:].tolist(), ends[-3:].tolist()) == ([2] * 3, [3] * 3)


@kinds
def test_a_blank_before_a_word_is_not_of_its_span(tokenizers, kind):
    ((_, starts, ends),) = tokenizers[kind].offsets(["and  the"])
    assert (starts[0], ends[-1]) == (0, 8)
    assert 5 in starts


def test_a_number_and_its_comma_have_spans_of_their_own():
    tokenizer = published("sentencepiece", "xlnet-cased-spiece.model", V=32_000)
    text = "In  1990, or 2,000, é."
    ((ids, starts, ends),) = tokenizer.offsets([text])
    np.testing.assert_array_equal(ids, tokenizer.encode([text])[0])
    words = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    assert words[:3] == ["In", "1990", ","]
    assert words[-2:] == ["é", "."]
    assert "".join(words) == text.replace(" ", "")
