"""Rows are classified as the papers have it."""

import numpy as np
import pytest

import modules
from finetune.tasks import classify
from tests.support import text_tasks
from tests.support.text_tasks import EXAMPLES, build

STRANGE = [*EXAMPLES[:3], EXAMPLES[3] | {"label": "perhaps"}]


@pytest.fixture(scope="module")
def case():
    return build(text_tasks.bert())


def mean(metric):
    return float(metric.total / metric.weight)


def test_the_loss_is_that_of_the_right_class_weighed_by_class(case):
    metrics, outputs = case.run(case.params, case.batch)
    logits_BC = np.asarray(outputs["logits_BC"], np.float64)
    nats_BC = np.log(np.exp(logits_BC).sum(1, keepdims=True)) - logits_BC
    own_B = nats_BC[np.arange(4), [0, 1, 1, 0]]
    assert mean(metrics["loss"]) == pytest.approx(own_B.mean(), rel=1e-5)
    weighed = build(text_tasks.bert(), loss=dict(weights=(1.0, 3.0)))
    metrics, _ = weighed.run(case.params, case.batch)
    expected = (own_B * [1, 3, 3, 1]).sum() / 8
    assert mean(metrics["loss"]) == pytest.approx(expected, rel=1e-5)


def test_a_row_is_classified_by_itself_whatever_stands_beside_it(case):
    whole = case.run(case.params, case.batch)[1]["logits_BC"]
    turned = {name: x[::-1] for name, x in case.batch.items()}
    logits_BC = case.run(case.params, turned)[1]["logits_BC"]
    np.testing.assert_allclose(logits_BC[::-1], whole, rtol=1e-5)


def test_filler_rows_and_unknown_labels_weigh_nothing(case):
    half = case.batch | {"weight_B": np.array([1, 1, 0, 0], np.float32)}
    unknown = case.batch | {"label_B": np.array([0, 1, -1, -1], np.int32)}
    few = {name: x[:2] for name, x in case.batch.items()}
    expected = case.run(case.params, few)[0]["loss"]
    for batch in (half, unknown):
        loss = case.run(case.params, batch)[0]["loss"]
        assert float(loss.total) == pytest.approx(float(expected.total))
        assert loss.weight == expected.weight


def test_an_unseen_label_is_an_error_and_in_no_loss(case):
    data = case.data
    strange = data.arrays(STRANGE) | {"weight_B": case.batch["weight_B"]}
    without = case.batch | {"label_B": np.array([0, 1, 1, -1], np.int32)}
    ours, outputs = case.run(case.params, strange)
    theirs, same = case.run(case.params, without)
    np.testing.assert_array_equal(outputs["logits_BC"], same["logits_BC"])
    assert ours["loss"] == theirs["loss"]
    hits, rows = ours["accuracy"].total, ours["accuracy"].weight
    assert (hits, rows) == (theirs["accuracy"].total, 4)
    outputs = {name: np.asarray(x) for name, x in outputs.items()}
    assert data.scores(STRANGE, outputs)["accuracy"] == hits / 4
    assert data.format_predictions(STRANGE, outputs) == data.format_predictions(EXAMPLES, outputs)


@pytest.mark.parametrize("metric", ["accuracy", "f1", "macro_f1", "micro_f1", "matthews"])
def test_every_metric_counts_an_unseen_label_as_wrong(case, metric):
    data = classify.TaskData(case.data.inputs, EXAMPLES, metrics=(metric,))
    right = {"logits_BC": np.array([[1.0, 0], [0, 1], [0, 1], [0, 1]])}
    assert data.scores([*EXAMPLES[:3], EXAMPLES[1]], right)[metric] == 1
    assert data.scores(STRANGE, right)[metric] < 1


def test_its_config_builds_the_same_host_half(case):
    halves = [classify.TaskData(case.data.inputs, EXAMPLES)]
    halves.append(classify.TaskData(case.data.inputs, [], **halves[0].to_config()))
    one, other = (data.arrays(STRANGE)["label_B"].tolist() for data in halves)
    assert one == other == [0, 1, 1, -2]
    assert halves[0].notes == halves[1].notes != []


def test_in_both_orders_a_pair_is_the_same_either_way():
    pairs = EXAMPLES[:3]
    case = build(text_tasks.gpt(), examples=pairs, host={"both": True})
    turned = case.data.arrays([x | {"texts": x["texts"][::-1]} for x in pairs])
    turned["weight_B"] = case.batch["weight_B"]
    assert (turned["tokens_BOL"] != case.batch["tokens_BOL"]).any()
    one, two = (case.run(case.params, x)[1]["logits_BC"] for x in (case.batch, turned))
    np.testing.assert_allclose(one, two, rtol=1e-5)


def test_labels_come_out_with_their_probabilities(case):
    outputs = {"logits_BC": np.asarray(case.run(case.params, case.batch)[1]["logits_BC"])}
    lines = case.data.format_predictions(EXAMPLES, outputs)
    for line, logits in zip(lines, outputs["logits_BC"], strict=True):
        assert line["label"] == ("no", "yes")[int(logits.argmax())]
        assert sum(line["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    right = [line["label"] == x["label"] for line, x in zip(lines, EXAMPLES, strict=True)]
    assert case.data.scores(EXAMPLES, outputs)["accuracy"] == np.mean(right)


def test_a_summary_is_the_backbone_s_pooler_where_there_is_one(case):
    assert modules.build("transformer", V=9).pooler is False
    assert case.params["head"].keys() == {"w_DC", "bias_C"}
    tanh = build(text_tasks.bert(), head=dict(summary="tanh"))
    assert "Dense_0" in tanh.params["head"]
    with pytest.raises(ValueError, match="summary"):
        build(text_tasks.bert(), head=dict(summary="sum"))
