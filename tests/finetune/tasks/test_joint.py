"""Several tasks learn from one row, which is read once."""

import jax
import numpy as np
import pytest

from finetune.tasks import joint
from pretrain.runtime.errors import UserError
from tests.support import text_tasks
from tests.support.compiler import quick_jit

CLASS = dict(name="classify", head=dict(dropout=0.0))
TAGS = dict(name="tag", head=dict(dropout=0.0), weight=3.0)
EXAMPLES = [
    {"texts": [text], "label": label, "words": text.split(), "labels": tags.split(), "where": text}
    for text, label, tags in (("a b c", "no", "X Y X"), ("d e", "yes", "Y X"), ("f", "yes", "X"))
]


def build(parts, examples=EXAMPLES, **fields) -> text_tasks.Case:
    case = dict(kind=joint, examples=examples, host={"parts": parts})
    return text_tasks.build(text_tasks.bert(), **case, **fields)


def test_parts_that_are_alike_see_the_same_states_under_dropout():
    case = build({"one": CLASS, "two": CLASS}, encoder=dict(dropout=0.5))
    params = case.params | {"parts_two": case.params["parts_one"]}
    rngs = {"dropout": jax.random.key(0)}
    metrics = quick_jit(
        lambda p: case.task.apply({"params": p}, case.batch, train=True, rngs=rngs)
    )(params)
    assert metrics["one_loss"].total == metrics["two_loss"].total


def test_the_loss_is_the_weighted_sum_of_the_parts_own():
    case = build({"intent": CLASS, "slots": TAGS})
    metrics, outputs = case.run(case.params, case.batch)
    mean = {name: float(x.total / x.weight) for name, x in metrics.items()}
    assert mean["loss"] == pytest.approx(mean["intent_loss"] + 3 * mean["slots_loss"], rel=1e-5)
    for name, kind in (("intent", CLASS), ("slots", TAGS)):
        alone = build({name: kind, "other": kind})  # of which this part is the same
        params = {k: x for k, x in case.params.items() if not k.startswith("parts_")}
        own = case.params[f"parts_{name}"]
        params |= {f"parts_{name}": own, "parts_other": own}
        theirs, _ = alone.run(params, alone.batch)
        for metric in ("loss", "accuracy" if name == "intent" else "hits"):
            key = f"{name}_{metric}"
            assert float(metrics[key].total) == pytest.approx(float(theirs[key].total), rel=1e-5)
    assert {"intent.logits_BC", "slots.tag_BL", "slots.word_BL"} == outputs.keys()


def test_an_example_is_exact_where_all_its_parts_are_right():
    case = build({"intent": CLASS, "slots": TAGS})
    word_BL = case.batch["word_BL"]
    tag_BL = np.where(word_BL, case.batch["slots.label_BL"], 0)
    outputs = {
        "intent.logits_BC": np.array([[1.0, 0], [0, 1], [1, 0]]),  # the last is wrong
        "slots.tag_BL": tag_BL,
        "slots.word_BL": word_BL,
    }
    assert case.data.scores(EXAMPLES, outputs) == pytest.approx(
        {"intent_accuracy": 2 / 3, "slots_accuracy": 1.0, "exact": 2 / 3}
    )
    outputs["slots.tag_BL"] = np.where(np.arange(3)[:, None] == 0, 1 - tag_BL, tag_BL)
    assert case.data.scores(EXAMPLES, outputs)["exact"] == pytest.approx(1 / 3)


def test_words_of_two_texts_are_tagged_in_the_row_of_the_pair():
    pair = EXAMPLES[0] | {"texts": ["a b", "c"], "counts": [2, 1]}
    case = build({"intent": CLASS, "slots": TAGS}, [pair, *EXAMPLES[1:]])
    alone = build({"intent": CLASS, "other": CLASS}, [pair, *EXAMPLES[1:]])
    for name in ("tokens_BL", "valid_BL", "segments_BL"):
        np.testing.assert_array_equal(case.batch[name], alone.batch[name])
    assert case.batch["segments_BL"][0].any()
    assert case.batch["slots.label_BL"][0, [1, 2, 4]].tolist() == [0, 1, 0]


def test_a_sentence_of_several_rows_has_no_one_label():
    long = EXAMPLES[0] | {"words": ["a"] * 30, "labels": ["X"] * 30, "texts": [" ".join("a" * 30)]}
    with pytest.raises(UserError, match=r"batches\.L=12 is too short: 3 sentences are read in 5"):
        build({"intent": CLASS, "slots": TAGS}, [long, *EXAMPLES[1:]])
    with pytest.raises(UserError, match=r"task\.parts: 1 tasks"):
        build({"intent": CLASS})
