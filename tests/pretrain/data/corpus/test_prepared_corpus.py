"""A prepared corpus opens whole or is named as damaged, and its split is fixed."""

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from pretrain.data.corpus import prepared_corpus
from pretrain.data.tokenizers import saved_files
from pretrain.runtime.errors import UserError


def test_the_manifest_says_where_the_corpus_came_from(corpus, source):
    manifest = json.loads((corpus.folder / "manifest.json").read_text())
    for path, digest in manifest["inputs"].items():
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
    for name, array in manifest["arrays"].items():
        content = (corpus.folder / f"{name}.bin").read_bytes()
        assert hashlib.sha256(content).hexdigest() == array["sha256"]
    assert manifest["tokenizer"] == saved_files.hash_saved(corpus.folder / "tokenizer")
    assert manifest["options"]["source"] == source


def test_an_array_of_another_size_is_named(copy):
    for name in prepared_corpus.ARRAYS:
        path = copy / f"{name}.bin"
        whole = path.read_bytes()
        os.truncate(path, len(whole) - 1)
        with pytest.raises(UserError, match=rf"damaged: {name}\.bin holds \d+ bytes, not \d+"):
            prepared_corpus.open_corpus(copy, 0.1)
        path.unlink()
        with pytest.raises(UserError, match=rf"{name}\.bin holds 0 bytes"):
            prepared_corpus.open_corpus(copy, 0.1)
        path.write_bytes(whole)


def test_a_corpus_without_a_manifest_is_damaged(copy):
    (copy / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest\.json is missing"):
        prepared_corpus.open_corpus(copy, 0.1)


@pytest.mark.parametrize(("documents", "held_out"), [(2, 0.5), (12, 0.05), (1000, 0.01), (7, 0.9)])
def test_the_split_is_by_document_and_fixed(documents, held_out):
    one, two = (prepared_corpus.split_documents(documents, held_out) for _ in range(2))
    assert sorted([*one["train"], *one["held_out"]]) == list(range(documents))
    assert len(one["held_out"]) == max(1, round(documents * held_out))
    assert one["all"].tolist() == list(range(documents))
    np.testing.assert_array_equal(one["held_out"], two["held_out"])


def test_nothing_may_be_held_out():
    splits = prepared_corpus.split_documents(1, 0.0)
    assert splits == {"train": [0], "all": [0]}


@pytest.mark.parametrize(("documents", "held_out"), [(1, 0.5), (9, -0.1), (9, 0.99), (9, 1.5)])
def test_a_split_with_an_empty_side_is_refused(documents, held_out):
    with pytest.raises(UserError, match=f"held_out={held_out} of {documents} documents"):
        prepared_corpus.split_documents(documents, held_out)
