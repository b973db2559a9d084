"""SentencePiece as XLNet uses it: learned the same each time, or the published vocabulary."""

import os
from pathlib import Path

import numpy as np
import pytest

from pretrain.data import tokenizers
from pretrain.runtime.errors import UserError
from tests.support import corpora

TEXTS = corpora.prose(0, 400).split("\n")


def learn(texts=TEXTS, **fields):
    return tokenizers.learn(iter(texts), **corpora.TOKENS | fields)


@pytest.fixture(scope="module")
def learned():
    return learn()


@pytest.fixture(scope="module")
def published():
    beside = Path(__file__).parents[5] / "shared/data/tokenizers/xlnet-cased-spiece.model"
    path = Path(os.environ.get("XLNET_SPIECE_MODEL", beside))
    if not path.exists():
        pytest.skip("set XLNET_SPIECE_MODEL to XLNet's published spiece.model")
    return path


def load_published(path, **fields):
    return tokenizers.learn(iter(()), name="sentencepiece", V=32_000, model=str(path), **fields)


def pieces(tokenizer, text):
    return [tokenizer.pieces[i] for i in tokenizer.encode([text])[0]]


def test_the_same_text_gives_the_same_vocabulary_to_the_byte(learned):
    assert learn().model == learned.model


def test_the_sample_of_a_text_is_the_same_each_time(learned):
    assert learn(sample=150).model == learn(sample=150).model != learned.model


def test_special_tokens_have_the_ids_of_xlnet(learned):
    assert learned.special == dict(unk=0, cls=3, sep=4, pad=5, mask=6, eod=7, eop=8)
    assert learned.pieces[9:17] == [".", "(", ")", '"', "-", "–", "£", "€"]
    assert len(learned.pieces) == learned.V == corpora.TOKENS["V"]


def test_what_is_encoded_decodes_to_itself(learned):
    text = TEXTS[0]
    (ids,) = learned.encode([text])
    assert ids.dtype == np.int32
    assert learned.decode(ids) == text


def test_encoding_many_texts_is_encoding_each(learned):
    for text, ids in zip(TEXTS[:20], learned.encode(TEXTS[:20]), strict=True):
        np.testing.assert_array_equal(ids, learned.encode([text])[0])


def test_special_tokens_cannot_be_written_in_text(learned):
    controls = [learned.special[name] for name in ("cls", "sep", "pad", "mask", "eod")]
    assert not set(controls) & set(learned.encode(["<cls> <sep> <pad> <mask> <eod>"])[0].tolist())


def test_words_start_at_blanks_angles_and_punctuation(learned):
    starts = {piece: bool(s) for piece, s in zip(learned.pieces, learned.word_start_V, strict=True)}
    assert starts["<sep>"]
    assert starts["."]
    assert starts["£"] is False
    assert all(s == (p[0] in "▁<" or p in '.()"-') for p, s in starts.items())
    assert 0 < learned.word_start_V.sum() < learned.V


def test_saved_and_loaded_it_is_the_same(learned, tmp_path):
    learned.save(tmp_path / "a")
    loaded = tokenizers.load(tmp_path / "a")
    loaded.save(tmp_path / "b")
    np.testing.assert_array_equal(loaded.encode(TEXTS[:1])[0], learned.encode(TEXTS[:1])[0])
    assert tokenizers.digest(tmp_path / "a") == tokenizers.digest(tmp_path / "b")


def test_the_digest_tells_two_vocabularies_apart(learned, tmp_path):
    learned.save(tmp_path / "a")
    learn(keep_accents=True).save(tmp_path / "b")
    assert tokenizers.digest(tmp_path / "a") != tokenizers.digest(tmp_path / "b")


def test_too_large_a_vocabulary_is_refused_with_the_limit():
    with pytest.raises(UserError, match=r"tokens\.V=90000: .* too high .* value <= \d+"):
        learn(V=90_000)


def test_too_small_a_sample_is_refused():
    with pytest.raises(UserError, match=r"tokens\.sample=100: "):
        tokenizers.settings(name="sentencepiece", sample=100)


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(UserError, match=r"tokens\.V=20: .*smaller than required"):
        learn(V=20)


def test_an_unknown_tokenizer_and_a_misspelt_field_are_named():
    with pytest.raises(UserError, match="'morse'"):
        tokenizers.settings(name="morse")
    with pytest.raises(UserError, match="argument 'vocabulary_size'; there are V, model"):
        tokenizers.settings(name="sentencepiece", vocabulary_size=9)


def test_settings_know_a_published_file_by_its_content(tmp_path, learned):
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(learned.model)
    a, b = (tokenizers.settings("sentencepiece", model=str(tmp_path / n)) for n in "ab")
    assert a == b
    with pytest.raises(UserError, match="gone: cannot be read"):
        tokenizers.settings("sentencepiece", model=str(tmp_path / "gone"))


def test_the_published_vocabulary_gives_the_published_ids(published):
    (ids,) = load_published(published).encode(["Hello, my dog is cute"])
    assert ids.tolist() == [17, 11368, 19, 94, 2288, 27, 10920]


def test_a_number_and_its_comma_are_two_pieces(published):
    tokenizer = load_published(published)
    assert pieces(tokenizer, "in 1990, or 3, 7") == ["▁in", "▁1990", ",", "▁or", "▁3", ",", "▁7"]
    assert pieces(tokenizer, "x9, y")[1:3] == ["9", ","]
    assert not any(p[-1] == "," and p[-2:-1].isdigit() for p in pieces(tokenizer, "19, 29, 9,"))


def test_the_wrong_size_for_a_published_vocabulary_is_refused(published):
    with pytest.raises(UserError, match="has 32000 pieces"):
        tokenizers.learn(iter(()), name="sentencepiece", V=8000, model=str(published))
