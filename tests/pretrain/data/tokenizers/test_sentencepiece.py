"""SentencePiece as XLNet uses it: its special pieces, its words, its commas."""

import pytest

from pretrain.data.tokenizers import registry, saved_files
from pretrain.runtime.errors import UserError
from tests.support.tokenizer_data import TEXTS, V, pieces, published, starts


@pytest.fixture(scope="module")
def tokenizer(learned):
    return learned["sentencepiece"]


@pytest.fixture(scope="module")
def xlnet():
    return published("sentencepiece", "xlnet-cased-spiece.model", V=32_000)


def test_special_tokens_have_the_ids_of_xlnet(tokenizer):
    assert tokenizer.special == dict(unk=0, cls=3, sep=4, pad=5, mask=6, eod=7, eop=8)
    assert tokenizer.pieces[9:17] == [".", "(", ")", '"', "-", "–", "£", "€"]


def test_what_is_encoded_decodes_to_itself(tokenizer):
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        assert tokenizer.decode(ids) == text


def test_words_start_at_blanks_angles_and_punctuation(tokenizer):
    begins = starts(tokenizer)
    assert begins["<sep>"]
    assert begins["."]
    assert begins["£"] is False
    assert all(start == (p[0] in "▁<" or p in '.()"-') for p, start in begins.items())
    assert 0 < tokenizer.word_start_V.sum() < tokenizer.V == V["sentencepiece"]


def test_the_digest_knows_the_cleaning_of_text(tokenizer, tmp_path):
    type(tokenizer)(tokenizer.model).save(tmp_path / "a")
    type(tokenizer)(tokenizer.model, keep_accents=True).save(tmp_path / "b")
    assert saved_files.hash_saved(tmp_path / "a") != saved_files.hash_saved(tmp_path / "b")


def test_too_small_a_sample_is_refused():
    with pytest.raises(UserError, match=r"tokens\.sample=100: "):
        registry.settings(name="sentencepiece", sample=100)


def test_the_published_vocabulary_gives_the_published_ids(xlnet):
    (ids,) = xlnet.encode(["Hello, my dog is cute"])
    assert ids.tolist() == [17, 11368, 19, 94, 2288, 27, 10920]


def test_a_number_and_its_comma_are_two_pieces(xlnet):
    assert pieces(xlnet, "in 1990, or 3, 7") == ["▁in", "▁1990", ",", "▁or", "▁3", ",", "▁7"]
    assert pieces(xlnet, "x9, y")[1:3] == ["9", ","]
    assert not any(p[-1] == "," and p[-2:-1].isdigit() for p in pieces(xlnet, "19, 29, 9,"))
