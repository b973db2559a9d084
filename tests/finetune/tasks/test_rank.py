"""Candidates are scored one by one, and the losses are the papers'."""

import itertools

import jax
import numpy as np
import pytest

from finetune.tasks import rank
from pretrain.runtime.errors import UserError
from tests.support import choice_data as cases
from tests.support.choice_data import SYSTEMS
from tests.support.rank_losses import write_out

CANDIDATES = ["the dog", "a wet cat", "rain came", "home", "why", "the sun went out", "a dry dog"]


def example(query, n, relevance):
    return {"query": query, "candidates": CANDIDATES[:n], "relevance": relevance, "where": "row"}


EXAMPLES = [
    example("where the dog went", 7, [0, 1, 0, 0, 2, 0, 0]),
    example("the rain", 2, [0, 1]),
    example("why came the cat", 4, [1, 0, 0, 3]),
]
UNKNOWN = example("home", 5, None)


def form(system="bert", examples=EXAMPLES, options=4, **fields):
    return cases.form(rank, system, examples, options=options, **fields)


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_candidate_of_a_query_is_read_once_in_order_behind_the_query(system):
    made = form(system)
    arrays = made.arrays([*EXAMPLES, UNKNOWN])
    np.testing.assert_array_equal(arrays["there_BO"].sum(1), [4, 3, 2, 4, 4, 1])
    np.testing.assert_array_equal(
        arrays["relevance_BO"][:3], [[0, 1, 0, 0], [2, 0, 0, 0], [0, 1, 0, 0]]
    )
    assert np.isnan(arrays["relevance_BO"][4:][arrays["there_BO"][4:]]).all()
    name = "tokens_BOLW" if made.inputs.W else "tokens_BOL"
    read = arrays[name][arrays["there_BO"]]
    valid = arrays["valid_BOL"][arrays["there_BO"]]
    pairs = [(x["query"], c) for x in [*EXAMPLES, UNKNOWN] for c in x["candidates"]]
    for ids, there, pair in zip(read, valid, pairs, strict=True):
        row = made.inputs.row(made.inputs.tokens(pair))
        np.testing.assert_array_equal(ids[there], row.ids)


def test_a_long_candidate_loses_its_end_and_a_query_what_is_beyond_half_the_row():
    long = {**EXAMPLES[1], "candidates": [" ".join(["rain"] * 90), "wet"]}
    made = form(examples=[long])
    arrays = made.arrays([long])
    query = made.inputs.tokens([long["query"]])[0]
    np.testing.assert_array_equal(arrays["tokens_BOL"][0, 0, 1 : 1 + len(query)], query)
    assert made.notes == ["1 of 4 rows were longer than 48"]
    turned = {**long, "query": long["candidates"][0], "candidates": ["the dog", "wet"]}
    arrays = form(examples=[turned]).arrays([turned])
    dog = made.inputs.tokens(["the dog"])[0]
    np.testing.assert_array_equal(arrays["tokens_BOL"][0, 0, 26 : 26 + len(dog)], dog)


@pytest.mark.parametrize(
    ("n", "size", "relevant"), [(20, 4, [3]), (21, 4, [0, 7, 8, 9, 13, 14, 20]), (4, 4, [2])]
)
def test_in_training_all_candidates_are_dealt_and_no_row_is_without_a_relevant_one(
    n, size, relevant
):
    relevance = np.zeros(n)
    relevance[relevant] = np.arange(len(relevant)) % 2 + 1
    orders = [np.random.default_rng(seed).permutation(n) for seed in (0, 1)]
    rows = rank.group_candidates(relevance, size, orders[0])
    dealt = list(itertools.chain(*rows))
    assert all(len(row) <= size and len(set(row)) == len(row) for row in rows)
    assert all(relevance[row].any() for row in rows)
    assert set(dealt) == set(range(n))
    assert len(dealt) <= n + len(rows)
    assert sum(relevance[i] == 0 for i in dealt) == n - len(relevant)
    other = rank.group_candidates(relevance, size, orders[1])
    assert n == size or rows != other
    shares = [sum(relevance[row] > 0) for row in rows]
    assert max(shares) - min(shares) <= 1


def test_queries_that_tell_nothing_are_not_trained_on():
    even, none = example("home", 3, [1, 1, 1]), example("home", 2, [0, -1])
    made = form()
    arrays = made.training_arrays([*EXAMPLES, even, none, UNKNOWN])
    assert made.notes[0].startswith("3 queries have no relevant candidate, or no other")
    assert arrays["there_BO"].sum() >= 7 + 2 + 4
    assert (np.nanmax(np.where(arrays["there_BO"], arrays["relevance_BO"], -1), 1) > 0).all()
    assert len(form(rows=1).training_arrays(EXAMPLES)["there_BO"]) == 3
    with pytest.raises(UserError, match="no query of the training set has a relevant candidate"):
        made.training_arrays([even, none])


def test_a_row_of_one_and_unknown_gains_are_refused():
    with pytest.raises(UserError, match=r"task\.options=1: candidates are compared"):
        form(options=1)
    with pytest.raises(UserError, match=r"task\.gain='log': choose one of"):
        form(gain="log")
    with pytest.raises(ValueError, match="loss"):
        cases.task(form(), loss={"name": "ranknet"})


@pytest.fixture(scope="module")
def ready():
    made = form()
    rows = cases.batch(made.arrays([*EXAMPLES, UNKNOWN]))
    module = cases.task(made, loss={"name": "logistic"})
    return made, rows, module, cases.draw_params(module, rows)


@pytest.fixture(scope="module")
def learned(ready):
    return cases.learner(ready[2])


def test_rows_of_unknown_or_equal_relevance_and_fillers_weigh_nothing(ready, learned):
    _, rows, module, params = ready
    logits = cases.predictor(module, params)(rows).astype(float)
    grads, sums = learned(params, rows)
    expected = [
        write_out("logistic", logits[b, :n], rows["relevance_BO"][b, :n])
        for b, n in ((0, 4), (1, 3), (2, 2), (3, 4))
    ]
    assert [float(x) for x in jax.tree.leaves(sums["loss"])] == pytest.approx(
        [sum(expected), 4], rel=1e-5
    )
    changed = dict(rows, relevance_BO=rows["relevance_BO"].copy())
    changed["relevance_BO"][4:] = [[2, 2, 2, 2], [7, 0, 0, 0]]
    jax.tree.map(np.testing.assert_array_equal, (grads, sums), learned(params, changed))
    changed["relevance_BO"][4] = [2, 0, 0, 0]
    changed["weight_B"] = np.array([1, 1, 1, 1, 0, 0], np.float32)
    jax.tree.map(np.testing.assert_array_equal, (grads, sums), learned(params, changed))


def test_pairs_in_the_right_order_are_counted(ready, learned):
    _, rows, module, params = ready
    logits = cases.predictor(module, params)(rows)
    right = total = 0
    for b in range(4):
        for i, j in itertools.permutations(np.flatnonzero(rows["there_BO"][b]), 2):
            if rows["relevance_BO"][b, i] > rows["relevance_BO"][b, j]:
                right, total = right + (logits[b, i] > logits[b, j]), total + 1
    assert [float(x) for x in jax.tree.leaves(learned(params, rows)[1]["pairs_right"])] == [
        right,
        total,
    ]


def test_scores_and_lines_put_the_rows_of_a_query_together():
    made = form(ks=(1,))
    outputs = {"logits_BO": np.full((6, 4), -9.0, np.float32)}
    outputs["logits_BO"][:2] = [[0, 6, 1, 2], [5, 3, 4, 99]]
    outputs["logits_BO"][2] = [2, 1, 99, 99]
    outputs["logits_BO"][3] = [0, 1, 2, 3]
    outputs["logits_BO"][4:] = [[0, 1, 2, 3], [4, 99, 99, 99]]
    lines = made.format_predictions([*EXAMPLES, UNKNOWN], outputs)
    assert [line["ranking"] for line in lines] == [
        [1, 4, 6, 5, 3, 2, 0],
        [0, 1],
        [3, 2, 1, 0],
        [4, 3, 2, 1, 0],
    ]
    assert lines[0]["scores"] == [0, 6, 1, 2, 5, 3, 4]
    values = made.scores(EXAMPLES, {"logits_BO": outputs["logits_BO"][:4]})
    assert values["mrr"] == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert values["precision@1"] == pytest.approx(2 / 3)
    assert values["ndcg@1"] == pytest.approx((1 / 3 + 0 + 1) / 3)
    assert values["map"] == pytest.approx((1 + 1 / 2 + (1 + 2 / 4) / 2) / 3)
