"""The texts of labelled examples are prepared as a corpus, a document each."""

import json

import numpy as np
import pytest

from pretrain.runtime.errors import UserError
from tests.support import corpora

TREC = ["HUM:ind Who wrote Hamlet ?", "NUM:date When was it ?", "HUM:gr Who won ?"]
SOURCE = "finetune.datasets.corpus"


def load(tmp_path, lines=TREC, name="TREC.train", **data):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    fields = dict(format="table", kind="lines", path=str(path)) | data
    tokens = dict(name="words", split="blank")
    return corpora.load(
        SOURCE, tmp_path / "cache", data=fields, tokens=tokens, sentences="line", held_out=0.0
    )


def test_a_corpus_holds_the_texts_without_their_labels(tmp_path):
    corpus = load(tmp_path)
    special, pieces = corpus.tokenizer.special, corpus.tokenizer.pieces
    found = " ".join(pieces[i] for i in corpus.tokens if i != special["eod"])
    assert found == "Who wrote Hamlet ? When was it ? Who won ?"
    assert corpus.manifest["documents"] == len(TREC)
    assert np.sum(corpus.tokens == special["eod"]) == len(TREC)
    assert corpus.folder.name.startswith("trec-")


def test_a_text_of_several_lines_and_a_pair_are_one_document(tmp_path):
    rows = [json.dumps(dict(a="one\n\ntwo", b="three", label="x"))] * 2
    corpus = load(tmp_path, rows, "pairs.jsonl", kind="jsonl", texts=("a", "b"))
    assert (corpus.manifest["documents"], corpus.manifest["sentences"]) == (2, 4)


def test_the_same_corpus_is_opened_again_and_another_reading_is_another(tmp_path):
    assert load(tmp_path).folder == load(tmp_path).folder
    assert load(tmp_path, encoding="latin-1").folder != load(tmp_path).folder


def test_a_pattern_names_several_files_in_order(tmp_path):
    (tmp_path / "TEST.train").write_text("HUM:ind Who is it ?\n")
    corpus = load(tmp_path, path=str(tmp_path / "*.train"))
    assert corpus.manifest["documents"] == len(TREC) + 1
    first = corpus.tokens[corpus.documents[0] : corpus.documents[1] - 1]
    pieces = corpus.tokenizer.pieces
    assert " ".join(pieces[i] for i in first) == "Who is it ?"


def test_what_is_not_there_is_named(tmp_path):
    fields = dict(cache=tmp_path, held_out=0.0)
    with pytest.raises(UserError, match=r"there is no .*nowhere"):
        corpora.load(SOURCE, data=dict(format="table", path=f"{tmp_path}/nowhere"), **fields)
    with pytest.raises(UserError, match="path is to name a file"):
        corpora.load(SOURCE, data=dict(format="table", path=""), **fields)
    with pytest.raises(ValueError, match="missing a required"):
        corpora.load(SOURCE, data=dict(format="table"), **fields)
    with pytest.raises(ValueError, match=r"there is no no\.such with a find_source"):
        corpora.load("no.such", data={}, **fields)
