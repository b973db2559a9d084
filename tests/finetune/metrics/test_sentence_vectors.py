"""Measures of sentence vectors equal their definitions, pair by pair."""

import itertools

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from finetune.metrics import sentence_vectors as metrics
from pretrain.runtime.errors import UserError


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(0.5, 1, (23, 6)).astype(np.float32)


def test_measures_of_all_pairs_equal_their_definitions(vectors, monkeypatch):
    monkeypatch.setattr(metrics, "ROWS", 4)
    u_ND = [x / np.linalg.norm(x) for x in vectors.astype(np.float64)]
    pairs = list(itertools.permutations(u_ND, 2))
    distances = [np.square(a - b).sum() for a, b in pairs]
    expected = np.log(np.mean([np.exp(-2 * d) for d in distances]))
    assert metrics.uniformity(vectors) == pytest.approx(expected, rel=1e-12)
    assert metrics.mean_cosine(vectors) == pytest.approx(
        np.mean([a @ b for a, b in pairs]), rel=1e-12
    )
    one, other = zip(*pairs, strict=True)
    found = metrics.alignment(3 * np.array(one), np.array(other))
    assert found == pytest.approx(np.mean(distances), rel=1e-12)
    expected = [a @ b for a, b in pairs]
    np.testing.assert_allclose(metrics.cosines(np.array(one), 2 * np.array(other)), expected)
    assert metrics.cosines(np.zeros((1, 2)), np.ones((1, 2))) == [0]
    for measure in (metrics.uniformity, metrics.mean_cosine):
        with pytest.raises(UserError, match="fewer than two"):
            measure(vectors[:1])


def test_shares_are_of_the_gram_matrix_and_count_directions(vectors):
    u_ND = metrics.normalize(vectors)
    shares_D = metrics.singular_shares(vectors)
    expected_D = scipy.linalg.eigvalsh(u_ND.T @ u_ND)[::-1] / len(u_ND)
    np.testing.assert_allclose(shares_D, expected_D, rtol=1e-10)
    assert metrics.effective_rank(metrics.singular_shares(np.eye(5))) == pytest.approx(5)
    collapsed = metrics.singular_shares(np.outer(np.arange(1, 9), [1.0, 2.0, 3.0]))
    assert metrics.effective_rank(collapsed) == pytest.approx(1)


def test_whitened_vectors_are_uncorrelated_along_the_main_axes(vectors):
    whitened_NK = metrics.fit_whitening(vectors, 3)(vectors)
    np.testing.assert_allclose(whitened_NK.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(whitened_NK.T @ whitened_NK / len(vectors), np.eye(3), atol=1e-12)
    # The main axes of the centred vectors, whose signs are free.
    axes_NK = scipy.linalg.svd(vectors - vectors.astype(np.float64).mean(0))[0][:, :3]
    np.testing.assert_allclose(
        np.abs(whitened_NK), np.abs(axes_NK) * len(vectors) ** 0.5, rtol=1e-6
    )
    flat_ND = vectors[:, [0, 1, 1]]
    with pytest.raises(UserError, match=r"whiten=3: these 23 vectors vary in 2 directions"):
        metrics.fit_whitening(flat_ND, 3)


def test_files_are_aggregated_in_three_ways():
    rng = np.random.default_rng(1)
    scores = [(rng.normal(size=n), rng.normal(size=n)) for n in (5, 20)]
    one, other = (scipy.stats.spearmanr(*x).statistic for x in scores)
    joined = (np.concatenate(x) for x in zip(*scores, strict=True))
    assert metrics.aggregate(scores) == pytest.approx(
        {
            "all": scipy.stats.spearmanr(*joined).statistic,
            "mean": (one + other) / 2,
            "weighted mean": (5 * one + 20 * other) / 25,
        }
    )


def test_means_leave_out_the_commonest_tokens(vectors):
    tokens = ["a", "b", "a", "c"]
    assert metrics.rank_tokens([tokens, ["c", "d"]]) == ["a", "c", "b", "d"]
    left_out = [frozenset(x) for x in ("", "a", "abc")]
    means_KD = metrics.mean_without(vectors[:4], tokens, left_out)
    expected_KD = [vectors[:4].mean(0), vectors[[1, 3]].mean(0), np.zeros(6)]
    np.testing.assert_allclose(means_KD, expected_KD, rtol=1e-6)
    assert metrics.mean_without(np.zeros((0, 6)), [], left_out).tolist() == [[0] * 6] * 3
