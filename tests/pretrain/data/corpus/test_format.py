"""A prepared corpus opens whole or is named as damaged, and its split is fixed."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from pretrain.data import prepare, tokenizers
from pretrain.data.corpus import format as corpora
from pretrain.runtime.errors import UserError
from tests.support.corpora import TOKENS
from tests.support.corpora import write as write_corpus


def load(source: str, cache: Path, **fields) -> corpora.Corpus:
    return prepare.prepare(**{"source": source, "cache": str(cache), "tokens": TOKENS} | fields)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def made(source, tmp_path_factory):
    """A corpus that nobody may change."""
    return load(source, tmp_path_factory.mktemp("cache"))


@pytest.fixture
def copy(made, tmp_path):
    """The same, to be damaged."""
    return Path(shutil.copytree(made.folder, tmp_path / made.folder.name))


def test_the_manifest_tells_where_it_came_from(made, source):
    manifest = json.loads((made.folder / "manifest.json").read_text())
    for path, digest in manifest["inputs"].items():
        assert hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest
    for name, array in manifest["arrays"].items():
        content = (made.folder / f"{name}.bin").read_bytes()
        assert hashlib.sha256(content).hexdigest() == array["sha256"]
    assert manifest["tokenizer"] == tokenizers.digest(made.folder / "tokenizer")
    assert manifest["options"]["source"] == source


@pytest.mark.parametrize("name", ["tokens", "documents", "sentences", "words", "bytes", "counts"])
def test_a_damaged_array_is_named(copy, name):
    path = copy / f"{name}.bin"
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(UserError, match=rf"damaged: {name}\.bin holds \d+ bytes, not \d+"):
        corpora.read(copy, 0.1)
    path.unlink()
    with pytest.raises(UserError, match=rf"{name}\.bin holds 0 bytes"):
        corpora.read(copy, 0.1)


def test_a_corpus_without_a_manifest_is_damaged(copy):
    (copy / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"manifest\.json is missing"):
        corpora.read(copy, 0.1)


@pytest.mark.parametrize(("documents", "held_out"), [(2, 0.5), (12, 0.05), (1000, 0.01), (7, 0.9)])
def test_the_split_is_by_document_and_fixed(documents, held_out):
    one, two = (corpora.split(documents, held_out) for _ in range(2))
    assert sorted([*one["train"], *one["held_out"]]) == list(range(documents))
    assert len(one["held_out"]) == max(1, round(documents * held_out))
    assert one["all"].tolist() == list(range(documents))
    np.testing.assert_array_equal(one["held_out"], two["held_out"])


def test_nothing_may_be_held_out():
    split = corpora.split(1, 0.0)
    assert {name: chosen.tolist() for name, chosen in split.items()} == {"train": [0], "all": [0]}


@pytest.mark.parametrize(("documents", "held_out"), [(1, 0.5), (9, -0.1), (9, 0.99), (9, 1.5)])
def test_a_split_with_an_empty_side_is_refused(documents, held_out):
    with pytest.raises(UserError, match=f"held_out={held_out} of {documents} documents"):
        corpora.split(documents, held_out)
