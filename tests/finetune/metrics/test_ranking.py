"""Rankings score as their definitions and people say."""

import itertools
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from finetune.metrics import ranking
from pretrain.runtime.errors import UserError

QUERY = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5)
few = hypothesis.settings(max_examples=50, deadline=None)
GAIN = {"exponential": lambda rel: 2**rel - 1, "linear": lambda rel: rel}


def by_hand(order, k, gain="exponential"):
    """The scores of relevances in this order, rank by rank, as the textbooks write them."""
    hits = [rank for rank, rel in enumerate(order, 1) if rel > 0]
    dcg, ideal = (
        sum(GAIN[gain](rel) / math.log2(rank + 1) for rank, rel in enumerate(each[:k], 1))
        for each in (order, sorted(order, reverse=True))
    )
    return {
        "mrr": 1 / hits[0] if hits else 0,
        "map": sum((i + 1) / rank for i, rank in enumerate(hits)) / max(len(hits), 1),
        f"precision@{k}": sum(rank <= k for rank in hits) / k,
        f"mrr@{k}": 1 / hits[0] if hits and hits[0] <= k else 0,
        f"ndcg@{k}": dcg / ideal if ideal else 0,
    }


@few
@hypothesis.given(QUERY, st.integers(1, 6), st.sampled_from(sorted(GAIN)))
def test_ties_stand_in_the_worst_of_their_orders(query, k, gain):
    found = ranking.rank_scores(*([list(x)] for x in zip(*query, strict=True)), [k], gain)
    orders = [
        order
        for order in itertools.permutations(query)
        if all(a[0] >= b[0] for a, b in itertools.pairwise(order))
    ]
    each = [by_hand([rel for _, rel in order], k, gain) for order in orders]
    worst = {name: min(one[name] for one in each) for name in each[0]}
    assert found == pytest.approx(worst)


def test_a_hand_made_example():
    """Ranks of the relevant: 2 and 3; 1; none."""
    scores = [[0.9, 0.8, 0.7, 0.1], [3.0, 1.0], [0.5]]
    relevance = [[0, 2, 1, 0], [1, 0], [0]]
    assert ranking.mrr(scores, relevance) == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert ranking.mrr(scores, relevance, 1) == pytest.approx(1 / 3)
    ap = ranking.mean_average_precision(scores, relevance)
    assert ap == pytest.approx(((1 / 2 + 2 / 3) / 2 + 1 + 0) / 3)
    assert ranking.precision(scores, relevance, 2) == pytest.approx((1 / 2 + 1 / 2) / 3)
    first = (3 / math.log2(3) + 1 / 2) / (3 + 1 / math.log2(3))
    assert ranking.ndcg(scores, relevance, 20) == pytest.approx((first + 1 + 0) / 3)


def test_a_relevance_below_zero_is_none():
    scores = [[3.0, 2.0, 1.0]]
    assert ranking.ndcg(scores, [[-2, 1, 0]]) == ranking.ndcg(scores, [[0, 1, 0]])
    assert ranking.mrr(scores, [[-2, 1, 0]]) == 0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ranking.mrr([], []), "nothing to score"),
        (lambda: ranking.mrr([[1.0]], [[1], [0]]), "1 predictions for 2 references"),
        (lambda: ranking.mrr([[1.0], [1.0, 2.0]], [[1], [0]]), "query 1: 2 predictions for 1"),
        (lambda: ranking.mrr([[math.nan]], [[1]]), "query 0: a score or a relevance is not"),
        (lambda: ranking.ndcg([[1.0]], [[1]], gain="cubic"), "gain='cubic': choose one of"),
        (lambda: ranking.mrr([[1.0]], [[1]], 0), "k=0: count from"),
    ],
)
def test_what_cannot_be_scored_is_said(call, message):
    with pytest.raises(UserError, match=message):
        call()
