"""The golden BERT as a release, and the run that comes of it; to be read only."""

import functools

import pytest

from tests.support import bert_release, tokenizer_data


@pytest.fixture(scope="session")
def release(tmp_path_factory):
    """The golden BERT as an .npz release."""
    folder = tmp_path_factory.mktemp("release") / "bert"
    bert_release.golden(folder)
    return folder


@pytest.fixture(scope="session")
def run(release, tmp_path_factory):
    """The run that came of it."""
    workdir = tmp_path_factory.mktemp("runs") / "bert"
    bert_release.import_release(release, workdir)
    return workdir


@pytest.fixture
def bare(tmp_path):
    """Writes a release of Hugging Face's kind without weights."""
    return functools.partial(bert_release.hugging_face, tmp_path)


@pytest.fixture
def tokens():
    """An XLNet's vocabulary of 31 pieces."""
    return tokenizer_data.unigram()


@pytest.fixture
def changed(release, tmp_path):
    """A copy of the release, to break."""
    return bert_release.copy(release, tmp_path / "changed")
