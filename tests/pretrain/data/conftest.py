"""Corpora that are prepared once for all tests of the data layer; nobody may change them."""

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
import zstandard

from pretrain.data.corpus.prepared_corpus import Corpus
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


@pytest.fixture(scope="session")
def corpus_of_clicks(tmp_path_factory) -> Corpus:
    """Documents of two texts and a label; a fifth of them is held out."""
    folder = tmp_path_factory.mktemp("clicks")
    lines = corpora.prose(0, sentences=240, per_paragraph=2).split("\n\n")[:-1]
    texts = [f"{document}\n{number % 3 % 2}" for number, document in enumerate(lines)]
    (folder / "clicks.txt").write_text("\n\n".join(texts))
    fields = dict(documents="blank", sentences="line", tokens={"name": "wordpiece", "V": 150})
    return corpora.load(f"text:{folder}/clicks.txt", folder, held_out=0.2, **fields)


@pytest.fixture
def cache(corpus, tmp_path) -> Path:
    """A copy of the cache of `corpus`, to be damaged."""
    return Path(shutil.copytree(corpus.folder.parent, tmp_path / "cache"))


@pytest.fixture
def copy(corpus, cache) -> Path:
    """The copied corpus."""
    return cache / corpus.folder.name


@pytest.fixture
def bucket() -> Iterator[str]:
    """Gives an address where fsspec has files in memory, as `gs://...` has them on a bucket."""
    files = fsspec.filesystem("memory")
    files.pipe("/bucket/books/b.txt", b"Second.\n")
    files.pipe("/bucket/books/a/c.txt.gz", gzip.compress(b"First.\n" * 90_000))
    files.pipe("/bucket/books/a/d.txt.zst", zstandard.compress(b"Between.\n"))
    files.pipe("/bucket/books/a/notes.md", b"not a text\n")
    yield "memory://bucket/books"
    files.rm("/bucket", recursive=True)
