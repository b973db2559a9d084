"""Tokens and boundaries of a corpus are those of its documents."""

import hashlib
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from pretrain.data import prepare, tokenizers
from pretrain.data.corpus import format as corpora
from pretrain.data.corpus import writer
from pretrain.runtime.errors import UserError
from tests.support.corpora import TOKENS
from tests.support.corpora import write as write_corpus


def load(source: str, cache: Path, **fields) -> corpora.Corpus:
    return prepare.prepare(**{"source": source, "cache": str(cache), "tokens": TOKENS} | fields)


def contents(folder: Path) -> dict[str, str]:
    """Every file of a corpus and its sha256."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files
    }
    return digests


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def made(source, tmp_path_factory):
    """A corpus that nobody may change."""
    return load(source, tmp_path_factory.mktemp("cache"))


def test_tokens_are_the_documents_each_with_its_end(made, source):
    eod = made.tokenizer.special["eod"]
    files = sorted(Path(source[5:]).parent.glob("*.txt"))
    assert made.manifest["documents"] == len(files) == len(made.documents) - 1
    for number, path in enumerate(files):
        begin, end = made.documents[number : number + 2]
        assert made.tokens[end - 1] == eod
        assert eod not in made.tokens[begin : end - 1]
        assert made.tokenizer.decode(made.tokens[begin:end]) == " ".join(path.read_text().split())


def test_sentences_begin_after_a_full_stop_or_an_end(made):
    stop, eod = made.tokenizer.pieces.index("."), made.tokenizer.special["eod"]
    before = made.tokens[made.sentences[1:] - 1]
    assert set(before.tolist()) == {stop, eod}
    assert made.sentences[-1] == made.documents[-1] == len(made.tokens)
    assert set(made.documents) <= set(made.sentences)
    assert (np.diff(made.sentences) > 0).all()


def test_counts_are_of_the_tokens(made):
    np.testing.assert_array_equal(
        made.counts_V, np.bincount(made.tokens, minlength=made.tokenizer.V)
    )


def test_small_vocabularies_take_two_bytes_and_large_ones_four(made):
    assert made.tokens.dtype == np.uint16
    assert writer.token_dtype(1 << 16) == np.uint16
    assert writer.token_dtype((1 << 16) + 1) == np.uint32


def test_paragraphs_end_in_eop_if_asked(source, made, tmp_path):
    marked = load(source, tmp_path, paragraphs=True)
    eop, eod = marked.tokenizer.special["eop"], marked.tokenizer.special["eod"]
    assert (marked.tokens == eop).sum() > 2 * marked.manifest["documents"]
    assert (marked.tokens[np.flatnonzero(marked.tokens == eod) - 1] == eop).all()
    np.testing.assert_array_equal(marked.tokens[marked.tokens != eop], made.tokens)


def test_a_vocabulary_without_its_special_tokens_is_refused(made):
    class Bare:
        special = {"eod": 7}

    with pytest.raises(UserError, match="no <eop>"):
        writer.closing_tokens(cast(tokenizers.Tokenizer, Bare()), paragraphs=True)


def test_the_size_of_a_part_changes_nothing(source, made, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "PART", 700)
    monkeypatch.setattr(writer, "BATCH", 50)
    assert contents(load(source, tmp_path).folder) == contents(made.folder)
