"""Tokens are scored by what a model sees of the others, one text like another."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from modules.backbones import text_mask
from modules.masks import Mask
from pretrain import objectives
from pretrain.checkpoint.named_leaves import flatten, nest
from pretrain.inference.token_scorer import TokenScorer
from pretrain.runtime.errors import UserError
from tests.support.compiler import quick_jit
from tests.support.tiny_models import layout

pytest_plugins = ["tests.support.tiny_models"]


@pytest.fixture(scope="module")
def scorer(run):
    """A scorer with weights of an objective drawn at random."""

    @functools.cache
    def make(kind):
        loaded = run(kind)
        objective = objectives.build_of_run(loaded)
        ids_BL = jnp.ones((1, 4), jnp.int32)
        batch = {"tokens_BL": ids_BL, "valid_BL": ids_BL > 0, "slots_BP": ids_BL[:, :1]}
        init = functools.partial(objective.init, method=read_both)
        shapes = jax.eval_shape(init, jax.random.key(0), batch)["params"]
        rng = np.random.default_rng(0)
        params = {
            name: jnp.asarray(rng.normal(0.1, 0.3, x.shape), x.dtype)
            for name, x in flatten(shapes).items()
        }
        return TokenScorer(loaded, layout(), params=nest(params), tokens=64)

    return make


def read_both(objective, batch):
    return objective.head.logits(objective.slot_states(batch), objective.backbone.table())


def log_p(scorer, rows, mask, **more):
    """log p of every token at every position of rows, [B, L, V]."""

    def read(objective):
        h_BLD = objective.backbone(jnp.array(rows), mask=mask, train=False, **more).h
        return jax.nn.log_softmax(objective.head.logits(h_BLD, objective.backbone.table()))

    objective = scorer.objective
    apply = quick_jit(lambda params: objective.apply({"params": params}, method=read))
    return np.asarray(apply(scorer.params))


def test_a_causal_model_scores_each_token_after_those_before(scorer):
    clm = scorer("clm")
    score, empty = clm.score(["a house of the people", ""])
    ids = clm.run.tokenizer.encode(["a house of the people"])[0].tolist()
    row = [clm.run.tokenizer.special["eod"], *ids]
    log_p_LV = log_p(clm, [row], Mask(is_causal=True))[0]
    np.testing.assert_allclose(score.nats, log_p_LV[range(len(ids)), ids], atol=2e-4)
    assert (empty.nats, empty.total) == ([], 0)


def test_a_masked_model_scores_each_token_from_all_others(scorer):
    mlm = scorer("mlm")
    (score,) = mlm.score(["a house of the people"])
    special = mlm.run.tokenizer.special
    ids = mlm.run.tokenizer.encode(["a house of the people"])[0].tolist()
    row = [special["cls"], *ids, special["sep"]]
    places = range(1, len(ids) + 1)
    rows = [[*row[:i], special["mask"], *row[i + 1 :]] for i in places]
    segments_BL = jnp.zeros((len(rows), len(row)), jnp.int32)
    log_p_BLV = log_p(mlm, rows, text_mask(mlm.run.backbone), segments_BL=segments_BL)
    expected = log_p_BLV[range(len(ids)), places, ids]
    np.testing.assert_allclose(score.nats, expected, atol=2e-4)


@pytest.mark.parametrize("kind", ["mlm", pytest.param("plm", marks=pytest.mark.slow)])
def test_a_mask_is_filled_by_what_scores_best_there(scorer, kind):
    scorer = scorer(kind)
    text = "the [MASK] of <mask>"
    (masks,) = scorer.fill([text], top=3)
    assert [len(fillings) for fillings in masks] == [3, 3]
    for fillings in masks:
        probabilities = [x.probability for x in fillings]
        assert probabilities == sorted(probabilities, reverse=True)
    (alone,) = scorer.fill(["the [MASK] of war"], top=scorer.run.tokenizer.V)
    assert sum(x.probability for x in alone[0]) == pytest.approx(1, abs=1e-3)


def test_what_stands_at_a_slot_is_not_seen_by_an_xlnet(scorer):
    plm = scorer("plm")
    row = plm.run.tokenizer.encode(["the house of war"])[0].tolist()
    batch = {
        "tokens_BL": jnp.array([row, [*row[:-1], 7], [7, *row[1:]]]),
        "valid_BL": jnp.ones((3, len(row)), bool),
        "slots_BP": jnp.full((3, 1), len(row) - 1),
    }
    read = quick_jit(functools.partial(plm.objective.apply, method="slot_states"))
    same, other, changed = read({"params": plm.params}, batch)
    np.testing.assert_array_equal(same, other)
    assert np.abs(same - changed).max() > 1e-3


def test_what_cannot_be_asked_is_refused_in_a_line(scorer, run):
    with pytest.raises(UserError, match="sees nothing behind a mask"):
        scorer("clm").fill(["the [MASK]"])
    with pytest.raises(UserError, match=r"text 2 has no mask: write \[MASK\]"):
        scorer("mlm").fill(["the [MASK]", "the"])
    with pytest.raises(UserError, match=r"text 1 has .* the model reads 32"):
        scorer("mlm").score(["war " * 60])


def test_a_run_that_scores_no_tokens_says_what_it_has(run):
    loaded = run("bilm")
    changes = dict(objective=dict(name="bilm"), execution={}, head=dict(tied=False))
    config = ConfigDict(loaded.config.to_dict() | changes)
    with pytest.raises(UserError, match=r"trained as 'bilm', .* it has vectors of texts \(embed\)"):
        TokenScorer(loaded._replace(config=config), layout())
