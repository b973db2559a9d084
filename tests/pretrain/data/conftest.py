"""Corpora that are prepared once for all tests of the data layer; nobody may change them."""

import shutil
from pathlib import Path

import pytest

from pretrain.data.corpus.format import Corpus
from tests.support import corpora


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> str:
    """Twelve documents of prose."""
    return corpora.write(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def corpus(source, tmp_path_factory) -> Corpus:
    """The documents in pieces; a fifth of them is held out."""
    return corpora.load(source, tmp_path_factory.mktemp("cache"), held_out=0.2)


@pytest.fixture(scope="session")
def corpus_of_words(source, tmp_path_factory) -> Corpus:
    """The documents in whole words; a fifth of them is held out."""
    folder = tmp_path_factory.mktemp("words")
    return corpora.load(source, folder, tokens={"name": "words"}, held_out=0.2)


@pytest.fixture
def cache(corpus, tmp_path) -> Path:
    """A copy of the cache of `corpus`, to be damaged."""
    return Path(shutil.copytree(corpus.folder.parent, tmp_path / "cache"))


@pytest.fixture
def copy(corpus, cache) -> Path:
    """The copied corpus."""
    return cache / corpus.folder.name
