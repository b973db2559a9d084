"""Tokens and boundaries of a corpus are those of its documents."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pretrain.data.corpus import writer
from pretrain.data.corpus.sentences import CONTINUED, DOCUMENT, PARAGRAPH, SENTENCE, Piece
from pretrain.data.tokenizers import registry
from pretrain.runtime.errors import UserError
from tests.support.corpora import hash_files, load


def test_tokens_are_the_documents_each_with_its_end(corpus, source):
    eod = corpus.tokenizer.special["eod"]
    files = sorted(Path(source[5:]).parent.glob("*.txt"))
    assert corpus.manifest["documents"] == len(files) == len(corpus.documents) - 1
    for number, path in enumerate(files):
        begin, end = corpus.documents[number : number + 2]
        assert corpus.tokens[end - 1] == eod
        assert eod not in corpus.tokens[begin : end - 1]
        text = corpus.tokenizer.decode(corpus.tokens[begin:end])
        assert text == " ".join(path.read_text().split())
    histogram = np.bincount(corpus.tokens, minlength=corpus.tokenizer.V)
    np.testing.assert_array_equal(corpus.counts_V, histogram)


def test_sentences_begin_after_a_full_stop_or_an_end(corpus):
    stop, eod = corpus.tokenizer.pieces.index("."), corpus.tokenizer.special["eod"]
    before = corpus.tokens[corpus.sentences[1:] - 1]
    assert set(before.tolist()) == {stop, eod}
    assert corpus.sentences[-1] == corpus.documents[-1] == len(corpus.tokens)
    assert set(corpus.documents) <= set(corpus.sentences)
    assert (np.diff(corpus.sentences) > 0).all()


def test_small_vocabularies_take_two_bytes_and_large_ones_four(corpus):
    assert corpus.tokens.dtype == np.uint16
    assert writer.token_dtype(1 << 16) == np.uint16
    assert writer.token_dtype((1 << 16) + 1) == np.uint32


def test_paragraphs_end_in_eop_if_asked(source, corpus, tmp_path):
    marked = load(source, tmp_path, paragraphs=True)
    eop, eod = marked.tokenizer.special["eop"], marked.tokenizer.special["eod"]
    assert (marked.tokens == eop).sum() > 2 * marked.manifest["documents"]
    assert (marked.tokens[np.flatnonzero(marked.tokens == eod) - 1] == eop).all()
    np.testing.assert_array_equal(marked.tokens[marked.tokens != eop], corpus.tokens)


def test_paragraphs_of_a_vocabulary_without_eop_are_refused(source, tmp_path):
    with pytest.raises(UserError, match="paragraphs=True needs <eop>"):
        load(source, tmp_path, tokens={"name": "words"}, paragraphs=True)


def test_the_size_of_a_part_changes_nothing(source, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "PART", 1500)
    monkeypatch.setattr(writer, "BATCH", 50)
    assert hash_files(load(source, tmp_path).folder) == hash_files(corpus.folder)


def test_each_sentence_of_a_corpus_of_words_ends_exactly_once(corpus_of_words):
    corpus = corpus_of_words
    ends = np.flatnonzero(corpus.tokens == corpus.tokenizer.special["eos"])
    np.testing.assert_array_equal(ends, corpus.sentences[1:] - 1)
    assert corpus.tokenizer.special["bos"] not in corpus.tokens
    assert set(corpus.documents) <= set(corpus.sentences)
    assert corpus.manifest["sentences"] == sum(40 + number for number in range(12))


def test_parts_of_an_endless_sentence_are_one_sentence():
    words = registry.learn(iter(["a b"]), "words")
    opens = [DOCUMENT, SENTENCE, CONTINUED, PARAGRAPH, DOCUMENT]
    pieces = [Piece("a b", what, 2, 3) for what in opens]
    closing = writer.closing_tokens(words, paragraphs=False)
    arrays = writer.encode_part(pieces, words, closing, first=True)
    assert arrays["tokens"].tolist() == [3, 4, 1, 3, 4, 3, 4, 1, 3, 4, 1, 3, 4]
    assert arrays["sentences"].tolist() == [0, 3, 8, 11]
    assert arrays["documents"].tolist() == [0, 11]


@pytest.mark.parametrize(
    ("special", "paragraphs", "sentence", "paragraph", "document"),
    [
        (dict(eod=7), False, [], [], [7]),
        (dict(eod=7, eop=8), True, [], [8], [8, 7]),
        (dict(eos=1, eod=1), False, [1], [1], [1]),
        (dict(eos=1, eod=7, eop=8), True, [1], [1, 8], [1, 8, 7]),
    ],
)
def test_the_end_of_a_sentence_ends_paragraphs_and_documents_too(
    special, paragraphs, sentence, paragraph, document
):
    ends = writer.closing_tokens(SimpleNamespace(special=special), paragraphs)
    expected = {CONTINUED: [], SENTENCE: sentence, PARAGRAPH: paragraph, DOCUMENT: document}
    assert {opens: end.tolist() for opens, end in ends.items()} == expected
