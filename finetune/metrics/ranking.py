"""How well candidates were ranked: reciprocal rank, average precision, precision and NDCG at k.

Each query has scores and relevances of its candidates; a query's result is a fraction of 1, and
the result is the mean over queries.  Two rules hold for all: candidates of equal score stand in
the worst order, so that a constant earns nothing by the order of the file; and a query without
any relevant candidate counts 0.0 (drop such queries before, if your benchmark does).
"""

from collections.abc import Callable, Sequence

import numpy as np

from finetune.metrics.counts import paired
from pretrain.runtime.errors import UserError

Lists = Sequence[Sequence[float]]
GAINS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exponential": lambda relevance: 2.0**relevance - 1,
    "linear": lambda relevance: relevance,
}


def mrr(scores: Lists, relevances: Lists, k: int | None = None) -> float:
    """The mean of 1 / the rank of the first relevant candidate, 0.0 if that lies beyond k.

    Relevant is what has a relevance above 0.  This and the functions below raise UserError if
    lengths differ, if there is no query, or if a score or relevance is not finite.
    """
    return _mean(scores, relevances, lambda ranked: _reciprocal(ranked[:k] > 0), k)


def mean_average_precision(scores: Lists, relevances: Lists) -> float:
    """The mean over queries of the mean, over the relevant, of the precision down to each."""
    return _mean(scores, relevances, lambda ranked: _average_precision(ranked > 0))


def precision(scores: Lists, relevances: Lists, k: int) -> float:
    """The share of relevant candidates in the first k places; empty places count as irrelevant."""
    return _mean(scores, relevances, lambda ranked: float((ranked[:k] > 0).sum()) / k, k)


def ndcg(
    scores: Lists, relevances: Lists, k: int | None = None, gain: str = "exponential"
) -> float:
    """Discounted gain of the first k places, relative to that of the best order of the candidates.

    A place's gain is divided by log2(1 + its rank).

    Args:
        gain: "exponential", 2^relevance - 1 (Burges et al. 2005, and TREC's gdeval), or "linear",
            the relevance (Järvelin and Kekäläinen 2002, and trec_eval).  Below 0 counts as 0.
    """
    if gain not in GAINS:
        raise UserError(f"gain={gain!r}: choose one of {', '.join(GAINS)}")
    return _mean(scores, relevances, lambda ranked: _ndcg(GAINS[gain](ranked), k), k)


def rank_scores(
    scores: Lists, relevances: Lists, ks: Sequence[int] = (1, 10), gain: str = "exponential"
) -> dict[str, float]:
    """mrr and map, and mrr@k, precision@k and ndcg@k for each k."""
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
    one: Callable[[np.ndarray], float],
    k: int | None = None,
) -> float:
    """The mean over queries of `one`, which sees the relevances in the order of the places."""
    paired(scores, relevances)
    if k is not None and k < 1:
        raise UserError(f"k={k}: count from the first place, 1 or more")
    each = zip(scores, relevances, strict=True)
    return float(np.mean([one(_ranked(i, *pair)) for i, pair in enumerate(each)]))


def _ranked(query: int, scores: Sequence[float], relevances: Sequence[float]) -> np.ndarray:
    """Relevances, none below 0, from the first place to the last."""
    paired(scores, relevances, f"query {query}")
    score_N, relevance_N = np.asarray(scores, np.float64), np.asarray(relevances, np.float64)
    if not (np.isfinite(score_N).all() and np.isfinite(relevance_N).all()):
        raise UserError(f"query {query}: a score or a relevance is not finite")
    return np.maximum(relevance_N, 0)[np.lexsort((relevance_N, -score_N))]


def _reciprocal(hits: np.ndarray) -> float:
    return 1 / (1 + int(np.argmax(hits))) if hits.any() else 0.0


def _average_precision(hits: np.ndarray) -> float:
    ranks = 1 + np.flatnonzero(hits)
    return float(np.mean(np.arange(1, len(ranks) + 1) / ranks)) if len(ranks) else 0.0


def _ndcg(gains: np.ndarray, k: int | None) -> float:
    discounts = np.log2(np.arange(2, len(gains) + 2))
    best = float((np.sort(gains)[::-1] / discounts)[:k].sum())
    return float((gains / discounts)[:k].sum()) / best if best else 0.0
