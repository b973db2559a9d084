"""Vectors are judged by all pairs, and by the room that they take."""

import numpy as np
import pytest

from finetune.sentences import judgement
from finetune.sentences.judgement import Pairs, Post
from tests.support.sentence_angles import Angles, write_task

SCORES = {"0 10": 5, "0 80": 1, "20 50": 4.5, "90 20": 2}


@pytest.fixture
def pairs():
    texts = [tuple(pair.split()) for pair in SCORES]
    return [Pairs("a.tsv", "a.tsv", texts, np.array([*SCORES.values()]))]


def test_correlations_are_by_file_by_folder_and_over_all(tmp_path):
    write_task(tmp_path / "STS16", one="0\t10\n0\t80\n", two="0\t10\n0\t20\n0\t30\n")
    lone = tmp_path / "lone.tsv"
    lone.write_text("0\t10\t1\n0\t20\t2\n")
    pairs, notes = judgement.read_pairs([str(tmp_path / "STS16"), str(lone)])
    assert [len(x.texts) for x in pairs] == [2, 3, 2]
    assert notes == []
    found = judgement.judge(Angles(), pairs)
    # Scores fall from line to line: only the lone file's rise.
    assert [x["spearman"] for x in found["files"].values()] == pytest.approx([100, 100, -100])
    assert found["mean"] == pytest.approx(100 / 3)
    assert found["weighted mean"] == pytest.approx(100 * (2 + 3 - 2) / 7)
    task = found["tasks"][str(tmp_path / "STS16")]
    assert task["mean"] == pytest.approx(100)
    assert task["all"] < 100
    assert found["tasks' mean"]["all"] == pytest.approx((task["all"] - 100) / 2)


def test_alignment_is_of_pairs_scored_higher(pairs):
    found = judgement.judge(Angles(), pairs)
    chord = [4 * np.sin(np.deg2rad(angle / 2)) ** 2 for angle in (10, 30)]
    assert found["alignment"] == pytest.approx(np.mean(chord))
    assert judgement.judge(Angles(), pairs, positive=5)["alignment"] is None
    assert found["all"] == pytest.approx(100)
    assert list(found["cosines"]) == ["a.tsv"]
    assert found["sentences"] == 6


def test_whitening_spreads_collapsed_vectors(pairs):
    reader = Angles(offset=50)
    plain, white = (judgement.judge(reader, pairs, post) for post in (Post(), Post(whiten=2)))
    assert plain["mean cosine"] > 0.99 > 0.2 > white["mean cosine"]
    assert plain["uniformity"] > -0.1 > white["uniformity"]
    assert plain["effective rank"] < 1.01 < 1.9 < white["effective rank"]


def test_commonest_tokens_are_left_out_of_means_alone(pairs):
    found = judgement.judge(Angles(), pairs)
    assert found["commonest"][:2] == ["0", "20"]
    assert [*found["without commonest"]] == ["0", "10", "34", "50", "100"]
    # Without its only token a sentence has no direction.
    assert found["without commonest"]["100"] == 0
    assert [*judgement.judge(Angles(averages=False), pairs)["without commonest"]] == ["0"]
