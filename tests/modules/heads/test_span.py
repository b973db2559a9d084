"""Heads of spans are those of BERT and XLNet, written out."""

import jax
import numpy as np
import pytest

from modules.heads.span import HEADS
from tests.support.arrays import draw_variables
from tests.support.compiler import quick_jit

B, D = 3, 6
CONTEXT = (np.arange(9) >= [[2], [3], [0]]) & (np.arange(9) < [[8], [9], [5]])
NULL = np.array([0, 1, 8], np.int32)
START = np.array([3, 1, 4], np.int32)
MAY = CONTEXT | (np.arange(9) == NULL[:, None])


def states():
    return np.random.default_rng(0).normal(0, 1, (B, 9, D)).astype(np.float32)


def build_head(conditional, h_BLD):
    """(head, parameters so large that all matter)"""
    head = HEADS[conditional](0.0)
    given = (jax.random.key(0), h_BLD, CONTEXT, NULL, START)
    return head, draw_variables(head.init, *given, train=False, seed=1)


def log_softmax(scores, may):
    """Over those that may be."""
    scores = np.where(may, np.asarray(scores, float), -np.inf)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def test_start_and_end_are_two_softmaxes_over_the_context_and_none():
    h_BLD = states()
    head, params = build_head(False, h_BLD)
    log, candidates = quick_jit(
        lambda params: (
            head.apply(params, h_BLD, CONTEXT, NULL, START, train=False),
            head.apply(params, h_BLD, CONTEXT, NULL, 9, method="candidates"),
        )
    )(params)
    own = params["params"]["ends"]
    logits = h_BLD.astype(float) @ np.asarray(own["w_DF"]) + np.asarray(own["bias_F"])
    for name, x in (("start_BL", logits[..., 0]), ("end_BL", logits[..., 1])):
        np.testing.assert_allclose(
            np.asarray(getattr(log, name))[MAY], log_softmax(x, MAY)[MAY], atol=1e-5
        )
        assert (np.asarray(getattr(log, name))[~MAY] < -1e29).all()
    for row in range(B):
        inside = np.flatnonzero(CONTEXT[row]).tolist()
        expected = {(s, e): logits[row, s, 0] + logits[row, e, 1] for s in inside for e in inside}
        np.testing.assert_allclose(candidates.none_B[row], logits[row, NULL[row]].sum(), atol=1e-5)
        check_candidates(candidates, row, expected)


def check_candidates(candidates, row, expected):
    names = zip(candidates.start_BO[row].tolist(), candidates.end_BO[row].tolist(), strict=True)
    real = {
        pair: score
        for pair, score in zip(names, candidates.score_BO[row].tolist(), strict=True)
        if score > -1e29
    }
    assert real.keys() == expected.keys()
    for pair, score in expected.items():
        assert real[pair] == pytest.approx(score, abs=1e-4)


def by_hand(params, h_LD, context_L, null):
    """XLNet's head, row by row: (start [L], end given each start [L, L], none)."""
    may_L = context_L | (np.arange(len(h_LD)) == null)
    p = jax.tree.map(lambda x: np.asarray(x, float), params["params"])
    start_L = log_softmax((h_LD @ p["start"]["w_DF"] + p["start"]["bias_F"])[:, 0], may_L)
    kernel = np.concatenate([p["end_state"]["w_DF"], p["end_start"]["w_DF"]])
    end_LL = []
    for first_D in h_LD:
        joined = np.concatenate([h_LD, np.broadcast_to(first_D, h_LD.shape)], axis=1)
        x = np.tanh(joined @ kernel + p["end_state"]["bias_F"])
        x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        x = x * p["end_norm"]["scale_D"] + p["end_norm"]["bias_D"]
        end_LL.append(log_softmax((x @ p["end"]["w_DF"] + p["end"]["bias_F"])[:, 0], may_L))
    joined = np.concatenate([np.exp(start_L) @ h_LD, h_LD[null]])
    kernel = np.concatenate([p["none_start"]["w_DF"], p["none_null"]["w_DF"]])
    none = np.tanh(joined @ kernel + p["none_start"]["bias_F"]) @ p["none"]["w_DF"][:, 0]
    return start_L, np.array(end_LL), none


def test_the_end_knows_its_start_and_no_answer_on_likely_starts():
    h_BLD = states()
    head, params = build_head(True, h_BLD)
    log, every, few = quick_jit(
        lambda params: (
            head.apply(params, h_BLD, CONTEXT, NULL, START, train=False),
            *(head.apply(params, h_BLD, CONTEXT, NULL, top, method="candidates") for top in (9, 2)),
        )
    )(params)
    for row in range(B):
        start_L, end_LL, none = by_hand(params, h_BLD[row].astype(float), CONTEXT[row], NULL[row])
        may = MAY[row]
        np.testing.assert_allclose(log.start_BL[row][may], start_L[may], atol=1e-4)
        np.testing.assert_allclose(log.end_BL[row][may], end_LL[START[row]][may], atol=1e-4)
        for none_B in (log.no_answer_logit_B, every.none_B, few.none_B):
            assert none_B[row] == pytest.approx(none, abs=1e-4)
        inside = np.flatnonzero(CONTEXT[row]).tolist()
        pairs = {(s, e): start_L[s] + end_LL[s, e] for s in inside for e in inside}
        check_candidates(every, row, pairs)
        best = sorted(inside, key=lambda s: -start_L[s])[:2]
        ends = {s: sorted(inside, key=lambda e, s=s: -end_LL[s, e])[:2] for s in best}
        check_candidates(few, row, {(s, e): pairs[s, e] for s in best for e in ends[s]})
