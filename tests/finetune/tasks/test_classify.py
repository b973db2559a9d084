"""Rows are told apart as the papers have it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from finetune import tasks
from finetune.inputs.rows import RowBuilder
from finetune.tasks import classify, regress
from modules.backbones import text_mask
from pretrain.data.tokenizers import wordpiece
from pretrain.inference.text_format import load_format
from pretrain.runtime.errors import UserError
from tests.support import gpt_releases
from tests.support import transformer_inputs as cases
from tests.support.bert_release import PIECES
from tests.support.compiler import quick_jit

L = 12
EXAMPLES = [
    {"texts": ["a b c", "d"], "label": "no", "where": "row 1"},
    {"texts": ["e f", "g h i"], "label": "yes", "where": "row 2"},
    {"texts": ["a", "b c d"], "label": "yes", "where": "row 3"},
    {"texts": ["b d f h"], "label": "no", "where": "row 4"},
]


@pytest.fixture(scope="module")
def bert():
    """(inputs, backbone)."""
    tokens = wordpiece.Tokenizer(PIECES)
    return RowBuilder(load_format("bert"), tokens, L), cases.tiny(
        **cases.BERT | dict(V=tokens.V, N=1, L=L)
    )


@pytest.fixture(scope="module")
def gpt():
    tokens = gpt_releases.vocabulary("hugging_face")
    made = RowBuilder(load_format("gpt"), tokens, L)
    return made, cases.tiny(**cases.GPT2 | dict(V=tokens.V + 3, N=1, L=L))


def built(system, kind=classify, examples=EXAMPLES, form=None, **fields):
    """(form, task, batch, parameters that all matter)."""
    inputs, backbone = system
    own = kind.TaskData(inputs, examples, **(form or {}))
    fields["head"] = {"dropout": 0.0, **fields.get("head", {})}
    task = tasks.build_task(backbone, own, **fields)
    batch = own.arrays(examples) | {"weight_B": np.ones(len(examples), np.float32)}
    shapes = jax.eval_shape(lambda: task.init(jax.random.key(0), batch, train=False))["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.normal(0.1, 0.4, x.shape).astype(np.float32), shapes)
    return own, task, batch, params


def sums(task, params, batch):
    run = quick_jit(lambda params, batch: task.apply({"params": params}, batch, train=False))
    return run(params, batch)


def predicted(task, params, batch):
    run = quick_jit(lambda p, b: task.apply({"params": p}, b, method="predict"))
    return {name: np.asarray(x) for name, x in run(params, batch).items()}


def test_the_loss_is_that_of_the_right_class_weighed_by_class(bert):
    _, task, batch, params = built(bert)
    logits_BC = predicted(task, params, batch)["logits_BC"].astype(np.float64)
    nats_BC = np.log(np.exp(logits_BC).sum(1, keepdims=True)) - logits_BC
    own_B = nats_BC[np.arange(4), [0, 1, 1, 0]]
    total, weight = jax.tree.leaves(sums(task, params, batch)["loss"])
    assert float(total / weight) == pytest.approx(own_B.mean(), rel=1e-5)
    _, weighed, *_ = built(bert, loss=dict(weights=(1.0, 3.0)))
    total, weight = jax.tree.leaves(sums(weighed, params, batch)["loss"])
    classes_B = np.array([1, 3, 3, 1])
    assert float(total / weight) == pytest.approx((own_B * classes_B).sum() / 8, rel=1e-5)


def test_a_row_is_told_by_itself_whatever_stands_beside_it(bert):
    form, task, batch, params = built(bert)
    whole = predicted(task, params, batch)["logits_BC"]
    turned = {name: x[::-1] for name, x in batch.items()}
    np.testing.assert_allclose(predicted(task, params, turned)["logits_BC"][::-1], whole, rtol=1e-5)
    changed = form.arrays([EXAMPLES[0], *EXAMPLES[:0:-1]]) | {"weight_B": batch["weight_B"]}
    np.testing.assert_allclose(
        predicted(task, params, changed)["logits_BC"][0], whole[0], rtol=1e-5
    )


def test_filler_rows_and_unknown_labels_weigh_nothing(bert):
    _, task, batch, params = built(bert)
    half = batch | {"weight_B": np.array([1, 1, 0, 0], np.float32)}
    unknown = batch | {"label_B": np.array([0, 1, -1, -1], np.int32)}
    few = {name: x[:2] for name, x in batch.items()}
    expected = [float(x) for x in jax.tree.leaves(sums(task, params, few)["loss"])]
    for other in (half, unknown):
        losses = jax.tree.leaves(sums(task, params, other)["loss"])
        assert [float(x) for x in losses] == pytest.approx(expected)


STRANGE = [*EXAMPLES[:3], EXAMPLES[3] | {"label": "perhaps"}]


def test_an_unseen_label_is_an_error_and_in_no_loss(bert):
    form, task, batch, params = built(bert)
    strange = form.arrays(STRANGE) | {"weight_B": batch["weight_B"]}
    without = batch | {"label_B": np.array([0, 1, 1, -1], np.int32)}

    @quick_jit
    def run(params, batch):
        given = {"params": params}, batch
        return task.apply(*given, train=False), task.apply(*given, method="predict")

    (ours, outputs), (theirs, same) = jax.device_get([run(params, x) for x in (strange, without)])
    np.testing.assert_array_equal(outputs["logits_BC"], same["logits_BC"])
    assert ours["loss"] == theirs["loss"]
    hits, rows = jax.tree.leaves(ours["accuracy"])
    assert (hits, rows) == (theirs["accuracy"].total, 4)
    assert form.scores(STRANGE, outputs)["accuracy"] == hits / 4
    assert form.format_predictions(STRANGE, outputs) == form.format_predictions(EXAMPLES, outputs)


@pytest.mark.parametrize("metric", ["accuracy", "f1", "macro_f1", "micro_f1", "matthews"])
def test_every_metric_counts_an_unseen_label_as_wrong(bert, metric):
    form = classify.TaskData(bert[0], EXAMPLES, metrics=(metric,))
    right = {"logits_BC": np.array([[1.0, 0], [0, 1], [0, 1], [0, 1]])}
    assert form.scores([*EXAMPLES[:3], EXAMPLES[1]], right)[metric] == 1
    assert form.scores(STRANGE, right)[metric] < 1


def test_an_unseen_label_is_named_once_also_by_a_form_made_again(bert):
    form, *_ = built(bert)
    for _ in range(2):
        form.arrays(STRANGE)
    assert form.notes == [
        "labels that training never showed count as errors, not in the loss: 'perhaps' (row 4)"
    ]
    again = classify.TaskData(bert[0], [], **form.to_config())
    again.arrays(STRANGE)
    assert again.notes == form.notes


def test_in_both_orders_a_pair_is_the_same_either_way(gpt):
    pairs = EXAMPLES[:3]
    form, task, batch, params = built(gpt, examples=pairs, form={"both": True})
    assert batch["tokens_BOL"].shape == (3, 2, L)
    turned = [x | {"texts": x["texts"][::-1]} for x in pairs]
    other = form.arrays(turned) | {"weight_B": batch["weight_B"]}
    one, two = (predicted(task, params, x)["logits_BC"] for x in (batch, other))
    np.testing.assert_allclose(one, two, rtol=1e-5)
    single = form.inputs.row(form.inputs.tokens(pairs[0]["texts"]))
    np.testing.assert_array_equal(batch["tokens_BOL"][0, 0, : len(single.ids)], single.ids)


def test_gpt_1_s_language_model_is_trained_along(gpt):
    _, task, batch, params = built(gpt, language_model=0.5)
    _, plain, *_ = built(gpt)
    found = sums(task, params, batch)
    assert float(found["loss"].total) == pytest.approx(
        float(sums(plain, params, batch)["loss"].total)
    )
    backbone = gpt[1]
    own = {"params": params["backbone"]}
    mask = text_mask(backbone, valid_BL=batch["valid_BL"])
    h_BLD = backbone.apply(own, batch["tokens_BL"], mask=mask, train=False).h
    logits_BLV = np.float64(h_BLD) @ np.float64(params["backbone"]["token_VD"]).T
    log_BLV = logits_BLV - np.log(np.exp(logits_BLV).sum(-1, keepdims=True))
    next_BL = np.take_along_axis(log_BLV[:, :-1], batch["tokens_BL"][:, 1:, None], 2)[..., 0]
    seen_BL = batch["valid_BL"][:, 1:]
    total, weight = jax.tree.leaves(found["lm_loss"])
    assert float(weight) == seen_BL.sum()
    assert float(total) == pytest.approx(-0.5 * (next_BL * seen_BL).sum(), rel=1e-4)


def test_a_frozen_backbone_has_no_gradient_and_the_head_has(bert):
    _, task, batch, params = built(
        bert, head=dict(summary="tanh"), encoder=dict(name="scalar_mix", frozen=True)
    )

    def loss(params):
        return task.apply({"params": params}, batch, train=False)["loss"].total

    slopes = quick_jit(jax.grad(loss))(params)
    assert all(not np.asarray(x).any() for x in jax.tree.leaves(slopes["backbone"]))
    assert all(np.asarray(x).any() for x in jax.tree.leaves(slopes["head"]))
    assert np.asarray(slopes["encoder"]["mixed"]["w_N"]).any()


def test_the_mix_is_pulled_towards_a_plain_average(bert):
    _, task, batch, params = built(bert, encoder=dict(name="scalar_mix"))
    _, pulled, *_ = built(bert, encoder=dict(name="scalar_mix", l2=0.1))
    w_N = params["encoder"]["mixed"]["w_N"]
    free, held = (sums(x, params, batch)["loss"] for x in (task, pulled))
    expected = 0.1 * np.square(w_N).sum() * float(free.weight)
    assert float(held.total - free.total) == pytest.approx(expected, rel=1e-4)


def test_labels_come_out_with_their_probabilities(bert):
    form, task, batch, params = built(bert)
    outputs = predicted(task, params, batch)
    lines = form.format_predictions(EXAMPLES, outputs)
    for line, logits in zip(lines, outputs["logits_BC"], strict=True):
        assert line["label"] == ("no", "yes")[int(logits.argmax())]
        assert sum(line["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    right = [line["label"] == x["label"] for line, x in zip(lines, EXAMPLES, strict=True)]
    assert form.scores(EXAMPLES, outputs)["accuracy"] == np.mean(right)


def test_numbers_are_told_by_squared_error_and_judged_by_correlation(bert):
    examples = [x | {"label": str(n)} for n, x in enumerate(EXAMPLES)]
    form, task, batch, params = built(bert, kind=regress, examples=examples)
    values_B = predicted(task, params, batch)["value_B"]
    total, weight = jax.tree.leaves(sums(task, params, batch)["loss"])
    assert float(total / weight) == pytest.approx(
        np.square(values_B - np.arange(4)).mean(), rel=1e-4
    )
    found = form.scores(examples, {"value_B": values_B})
    assert found["pearson"] == pytest.approx(np.corrcoef(values_B, np.arange(4))[0, 1], rel=1e-4)
    unknown = batch | {"label_B": np.array([0, 1, np.nan, np.nan], np.float32)}
    assert float(sums(task, params, unknown)["loss"].weight) == 2
    assert np.isfinite(float(sums(task, params, unknown)["loss"].total))
    with pytest.raises(UserError, match="row 1: label 'much' is no number"):
        form.arrays([EXAMPLES[0] | {"label": "much"}])


def test_a_summary_is_the_backbone_s_pooler_where_there_is_one(bert):
    assert modules.build("transformer", V=9).pooler is False
    *_, params = built(bert)
    assert params["head"].keys() == {"w_DC", "bias_C"}
    *_, params = built(bert, head=dict(summary="tanh"))
    assert "Dense_0" in params["head"]
    with pytest.raises(ValueError, match="summary"):
        built(bert, head=dict(summary="sum"))
    assert jnp.isfinite(params["head"]["w_DC"]).all()
