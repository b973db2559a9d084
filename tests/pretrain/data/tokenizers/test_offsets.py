"""Offsets of tokens: the same ids, and each where its characters are in the text as given."""

import unicodedata

import numpy as np
import pytest

from pretrain.data import tokenizers
from tests.support.tokenizer_data import TEXTS, V, learn, published

KINDS = {kind: {"V": size} for kind, size in V.items()} | {
    "sentencepiece": {"V": 150},
    "words": {},
}
ODD = [
    "",
    "   ",
    "Café  “naïve”\tÜnï\n code—it's ``so'' ''and`` on, e\u0301a ",
    "In 1990, 2,000, or 12,345,678, ﬁne ½ Σας ΣΑΣ İx 北京大学, 🙂 \x07 ´end´",
]


@pytest.fixture(scope="module")
def learned():
    texts = [*TEXTS, *ODD[2:] * 3]
    return {
        kind: tokenizers.learn(iter(texts), name=kind, **fields) for kind, fields in KINDS.items()
    }


def plain(text):
    """Letters and digits alone, without case, accents and compatibility forms."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in unicodedata.normalize("NFKD", decomposed) if c.isalnum())


def spelled(tokenizer, i):
    return plain(tokenizer.pieces[i].removeprefix("##").removesuffix("</w>"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_are_those_of_encode(learned, kind):
    texts = [*TEXTS[:40], *ODD]
    found = learned[kind].offsets(texts)
    for ids, own in zip(learned[kind].encode(texts), found, strict=True):
        np.testing.assert_array_equal(own.ids, ids)
        assert len(own.starts) == len(own.ends) == len(ids)


@pytest.mark.parametrize("kind", KINDS)
def test_spans_are_ordered_and_leave_no_letter_out(learned, kind):
    texts = [*TEXTS[:40], *ODD]
    for text, own in zip(texts, learned[kind].offsets(texts), strict=True):
        assert (own.starts <= own.ends).all()
        assert (np.diff(own.starts) >= 0).all()
        assert (np.diff(own.ends) >= 0).all()
        there = np.zeros(len(text), bool)
        for start, end in zip(own.starts, own.ends, strict=True):
            there[start:end] = True
            assert not text[start:end][:1].isspace()
        assert [c for c, seen in zip(text, there, strict=True) if c.isalnum() and not seen] == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "byte_bpe"])
def test_a_token_stands_where_its_letters_are(learned, kind):
    tokenizer, texts = learned[kind], [*TEXTS[:40], *ODD]
    for text, own in zip(texts, tokenizer.offsets(texts), strict=True):
        for i, start, end in zip(*own, strict=True):
            letters, there = spelled(tokenizer, i), plain(text[start:end])
            if i != tokenizer.special["unk"]:
                # A few characters are several to a tokenizer: "½", "ﬁ".
                assert letters == there or (end - start == 1 and letters in there)


def test_the_bytes_of_one_character_stand_all_where_it_is():
    tokenizer = learn("byte_bpe")
    (own,) = tokenizer.offsets(["a 北"])
    assert (own.starts[-3:].tolist(), own.ends[-3:].tolist()) == ([2] * 3, [3] * 3)


def test_a_blank_before_a_word_is_not_of_its_span(learned):
    for kind in KINDS:
        (own,) = learned[kind].offsets(["and  the"])
        assert (own.starts[0], own.ends[-1]) == (0, 8)
        assert 5 in own.starts


def test_a_number_and_its_comma_have_spans_of_their_own():
    tokenizer = published(
        "sentencepiece", "xlnet-cased-spiece.model", V=32_000, lower=False, keep_accents=False
    )
    text = "In  1990, or 2,000, é."
    (own,) = tokenizer.offsets([text])
    np.testing.assert_array_equal(own.ids, tokenizer.encode([text])[0])
    words = [text[s:e] for s, e in zip(own.starts, own.ends, strict=True)]
    assert words[:3] == ["In", "1990", ","]
    assert words[-2:] == ["é", "."]
    assert "".join(words) == text.replace(" ", "")
