"""Scores rankings: reciprocal rank, average precision, precision and NDCG at k.

Each query has scores and relevances of its candidates; a result is the mean over queries of a
fraction of 1.  A query without any relevant candidate counts 0.0: drop such queries before, if
your benchmark does.
"""

from collections.abc import Callable, Sequence

import numpy as np

from finetune.metrics.counts import check_paired
from pretrain.runtime.errors import UserError

Lists = Sequence[Sequence[float]]
GAINS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    # An irrelevant candidate gains nothing in either.
    "exponential": lambda relevance: 2.0**relevance - 1,
    "linear": lambda relevance: relevance,
}


def mrr(scores: Lists, relevances: Lists, k: int | None = None) -> float:
    """Returns the mean of 1 / rank of the first relevant candidate, 0.0 where it is beyond k.

    Raises:
        UserError: lengths differ, there is no query, or a number is not finite.  So do the
            functions below.
    """
    # A candidate is relevant if its relevance is above 0.
    return _mean(scores, relevances, lambda rel_N: _reciprocal_rank(rel_N[:k] > 0), k)


def mean_average_precision(scores: Lists, relevances: Lists) -> float:
    """Returns the mean of the average precision: that at the rank of each relevant candidate."""
    return _mean(scores, relevances, lambda rel_N: _average_precision(rel_N > 0))


def precision(scores: Lists, relevances: Lists, k: int) -> float:
    """Returns the share of the first k places with a relevant candidate, empty ones included."""
    return _mean(scores, relevances, lambda rel_N: float((rel_N[:k] > 0).sum()) / k, k)


def ndcg(
    scores: Lists, relevances: Lists, k: int | None = None, gain: str = "exponential"
) -> float:
    """Returns the discounted gain of the first k places, relative to that of the best order.

    Args:
        gain: "exponential", 2^relevance - 1 (Burges et al. 2005, and TREC's gdeval), or "linear",
            the relevance (Järvelin and Kekäläinen 2002, and trec_eval).  Below 0 counts as 0.
    """
    if gain not in GAINS:
        raise UserError(f"gain={gain!r}: choose one of {', '.join(GAINS)}")
    return _mean(scores, relevances, lambda rel_N: _normalised_gain(GAINS[gain](rel_N), k), k)


def rank_scores(
    scores: Lists, relevances: Lists, ks: Sequence[int] = (1, 10), gain: str = "exponential"
) -> dict[str, float]:
    """Returns mrr and map, and mrr@k, precision@k and ndcg@k for each k."""
    result = {
        "mrr": mrr(scores, relevances),
        "map": mean_average_precision(scores, relevances),
    }
    for k in ks:
        result[f"precision@{k}"] = precision(scores, relevances, k)
        result[f"mrr@{k}"] = mrr(scores, relevances, k)
        result[f"ndcg@{k}"] = ndcg(scores, relevances, k, gain)
    return result


def _mean(
    scores: Lists,
    relevances: Lists,
    metric: Callable[[np.ndarray], float],
    k: int | None = None,
) -> float:
    """Returns the mean over queries of `metric`, of the relevances in the order of the ranks."""
    check_paired(scores, relevances)
    if k is not None and k < 1:
        raise UserError(f"k={k}: count from the first place, 1 or more")
    queries = enumerate(zip(scores, relevances, strict=True))
    return float(np.mean([metric(_sort_relevances(i, *query)) for i, query in queries]))


def _sort_relevances(
    query: int, scores: Sequence[float], relevances: Sequence[float]
) -> np.ndarray:
    """Returns the relevances by falling score, none below 0."""
    check_paired(scores, relevances, f"query {query}")
    score_N, relevance_N = np.asarray(scores, np.float64), np.asarray(relevances, np.float64)
    if not (np.isfinite(score_N).all() and np.isfinite(relevance_N).all()):
        raise UserError(f"query {query}: a score or a relevance is not finite")
    # Among equal scores the less relevant comes first: a constant earns nothing by the order of
    # the file.  Below 0, as TREC judges spam, is irrelevant.
    return np.maximum(relevance_N, 0)[np.lexsort((relevance_N, -score_N))]


# Each of these takes the candidates of one query in the order of their ranks.


def _reciprocal_rank(hits: np.ndarray) -> float:
    return 1 / (1 + int(np.argmax(hits))) if hits.any() else 0.0


def _average_precision(hits: np.ndarray) -> float:
    ranks = 1 + np.flatnonzero(hits)
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks)) if len(ranks) else 0.0


def _normalised_gain(gains: np.ndarray, k: int | None) -> float:
    # A gain is divided by log2(1 + rank).  The best order is that of all candidates, not only of
    # the first k.
    discounts = np.log2(np.arange(2, len(gains) + 2))
    best = float((np.sort(gains)[::-1] / discounts)[:k].sum())
    return float((gains / discounts)[:k].sum()) / best if best else 0.0
