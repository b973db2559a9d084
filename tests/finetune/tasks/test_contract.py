"""Every task on every backbone learns a few examples by heart, and predicts them."""

import json
from typing import NamedTuple

import jax
import numpy as np
import optax
import pytest

import modules
from finetune import tasks
from finetune.inputs.batches import Examples
from finetune.inputs.rows import RowBuilder
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.text_format import load_format
from pretrain.training.compiled_steps import Steps
from tests.support import tagging_data
from tests.support import transformer_inputs as cases
from tests.support.compiler import quick_jit

NO_DROPS = dict(dropoute=0.0, dropouti=0.0, dropouth=0.0, wdrop=0.0)
BACKBONES = {
    "elmo": ("elmo", tagging_data.BACKBONES["elmo"]),
    "bert": ("bert", tagging_data.BACKBONES["bert"]),
    "gpt": ("gpt", dict(name="transformer", **tagging_data.WIDTHS, **cases.GPT1, L=64)),
    "gpt2": ("gpt", tagging_data.BACKBONES["gpt"]),
    "xlnet": ("xlnet", tagging_data.BACKBONES["xlnet"] | {"M": 12}),
    "recurrent": ("words", dict(name="recurrent", D=12, U=12)),
    "awd_lstm": ("words", dict(name="awd_lstm", D=12, U=16, N=2, **NO_DROPS)),
    "text_cnn": ("words", dict(name="text_cnn", D=12, filters=((2, 8), (3, 8)))),
    "text_rcnn": ("words", dict(name="text_rcnn", D=12, U=8, F=16)),
}
SENTENCES = [" ".join(x["words"]) for x in tagging_data.EXAMPLES]


def asked(number, context, answer):
    place = {"text": answer, "start": context.index(answer)}
    return dict(id=str(number), question="the", context=context, answers=[place], impossible=False)


class Case(NamedTuple):
    """Examples, fields of the host's half, and the metrics of perfect predictions."""

    examples: list[dict]
    fields: dict
    scores: dict


CASES = {
    "classify": Case(
        [{"texts": [text], "label": "ab"[i % 2]} for i, text in enumerate(SENTENCES)],
        {},
        {"accuracy": 1.0},
    ),
    "distil": Case(
        [{"texts": [text], "label": "ab"[i % 2]} for i, text in enumerate(SENTENCES)],
        {"teacher": "runs/none", "layers": (1,)},
        {"accuracy": 1.0},
    ),
    "regress": Case(
        [{"texts": [text, "the mone"], "label": i / 2} for i, text in enumerate(SENTENCES)],
        {},
        {"pearson": 1.0},
    ),
    "tag": Case(tagging_data.EXAMPLES, {"scheme": "iob2"}, {"f1": 1.0}),
    "joint": Case(
        [
            x | {"texts": [" ".join(x["words"])], "label": "ab"[i % 2]}
            for i, x in enumerate(tagging_data.EXAMPLES)
        ],
        {"parts": {"topic": {"name": "classify"}, "names": {"name": "tag", "scheme": "iob2"}}},
        {"names_f1": 1.0, "topic_accuracy": 1.0, "exact": 1.0},
    ),
    "span": Case(
        [asked(i, text, text.split()[i]) for i, text in enumerate(SENTENCES)],
        {},
        {"exact_match": 100.0},
    ),
    "choice": Case(
        [
            {"texts": [text], "choices": ["lost", "mone koba", "way"][: 2 + i % 2], "label": i % 2}
            for i, text in enumerate(SENTENCES)
        ],
        {},
        {"accuracy": 1.0},
    ),
    "rank": Case(
        [
            {"query": text, "candidates": ["lost", "koba", "way"], "relevance": relevance}
            for text, relevance in zip(SENTENCES, np.eye(3)[[0, 2, 1, 0]].tolist(), strict=True)
        ],
        {"options": 3},
        {"mrr": 1.0},
    ),
    "scenes": Case(
        [
            {"query": text, "candidates": ["lost", "koba", "way"], "relevance": relevance}
            | {"features": [[0.0]] * 3, "scene": "ab"[i % 2], "history": ["x", "y"][: i % 2]}
            for i, (text, relevance) in enumerate(
                zip(SENTENCES, np.eye(3)[[0, 2, 1, 0]].tolist(), strict=True)
            )
        ],
        {"options": 3, "history": 2},
        {"mrr": 1.0},
    ),
    "contrast": Case(
        [{"texts": [text, text[:9]], "label": i / 2} for i, text in enumerate(SENTENCES)], {}, {}
    ),
}
SHARDED = sorted({*CASES} - {"contrast", "distil"})  # whose batches are not `arrays` alone
# What only some backbones can do, on one task each.
MORE = {
    ("gpt", "tag"): dict(language_model=0.5),
    ("gpt2", "span"): dict(language_model=0.5),
    ("gpt", "rank"): dict(language_model=0.5),
    ("elmo", "classify"): dict(
        encoder=dict(
            name="recurrent", features=dict(name="scalar_mix", frozen=True), U=6, join=(0, 1)
        ),
        head=dict(pool="max"),
    ),
    ("xlnet", "classify"): dict(encoder=dict(window=8)),
    ("bert", "contrast"): dict(loss=dict(views=("shuffle", "feature_cutoff"))),
    ("xlnet", "tag"): dict(encoder=dict(window=8)),
}
# Each task once, and each backbone of a published system; the rest of the matrix takes minutes.
QUICK = {*MORE, ("bert", "regress"), ("bert", "choice")} - {("xlnet", "tag")}
QUICK |= {("recurrent", "joint")}
CELLS = [
    pytest.param(x, task, marks=[] if (x, task) in QUICK else [pytest.mark.slow])
    for x in BACKBONES
    for task in CASES
]


@pytest.mark.parametrize(("backbone", "task"), CELLS)
def test_every_backbone_learns_every_task(backbone, task):
    (system, model), case, kind = BACKBONES[backbone], CASES[task], tasks.load_kind(task)
    examples = [x | {"where": f"line {i}"} for i, x in enumerate(case.examples)]
    inputs = RowBuilder(
        load_format(system), tagging_data.tokenizer(system), 32, W=model.get("W", 0)
    )
    data = kind.TaskData(inputs, examples, **case.fields)
    sized = model if "V" in model else model | {"V": inputs.tokenizer.V + inputs.new}
    fields = dict(MORE.get((backbone, task), {}))
    head = {"dropout": 0.0, **fields.pop("head", {})}
    module = tasks.build_task(modules.build(**sized), data, head=head, **fields)
    rows = tagging_data.add_weights(data.arrays(examples))
    losses, outputs = fit(module, rows)
    assert losses[-1] < 0.3 * losses[0]
    assert np.isfinite(losses).all()
    scores = data.scores(examples, outputs)
    for name, value in case.scores.items():
        assert scores[name] == pytest.approx(value, abs=0.02)
    assert len(data.format_predictions(examples, outputs)) == len(examples)


def train_once(task, devices):
    """A batch's metrics and gradient, as an update by it alone."""
    (system, model), case, kind = BACKBONES["recurrent"], CASES[task], tasks.load_kind(task)
    examples = [x | {"where": f"line {i}"} for i, x in enumerate(2 * case.examples)]
    inputs = RowBuilder(load_format(system), tagging_data.tokenizer(system), 32)
    data = kind.TaskData(inputs, examples, **case.fields)
    backbone = modules.build(**model, V=inputs.tokenizer.V + inputs.new)
    module = tasks.build_task(backbone, data, head={"dropout": 0.0})
    layout = Layout(make_mesh(devices=jax.devices()[:devices]))
    batches = Examples(data.arrays(examples), B=8, L=32)
    steps = Steps(module, optax.sgd(1.0), layout, [batches], seed=0)
    state = steps.init()
    before = jax.device_get(state.params)
    state, metrics = steps.train(state, layout.shard_batch(batches.batch(0), 8))
    grads = jax.tree.map(lambda a, b: a - b, before, jax.device_get(state.params))
    return {name: float(x.total / x.weight) for name, x in metrics.sums.items()}, grads


@pytest.mark.slow
@pytest.mark.parametrize("task", SHARDED)
def test_eight_devices_train_a_task_as_one_does(task):
    (metrics, grads), (expected, expected_grads) = (train_once(task, n) for n in (8, 1))
    assert metrics == pytest.approx(expected, rel=1e-5)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), grads, expected_grads)
    assert max(np.abs(x).max() for x in jax.tree.leaves(grads)) > 1e-3


KEPT = {  # fields beside those of the cases, to come back by the config
    "classify": dict(metrics=("macro_f1",)),
    "tag": dict(convert_to="iobes", min_count=2, zero_digits=True, own_characters=9),
    "span": dict(max_answer=7),
    "choice": dict(gap="_"),
}


@pytest.mark.parametrize("task", CASES)
def test_a_host_half_of_its_config_alone_makes_the_same_rows(task):
    case, kind = CASES[task], tasks.load_kind(task)
    examples = [x | {"where": f"line {i}"} for i, x in enumerate(case.examples)]
    inputs = RowBuilder(load_format("bert"), tagging_data.tokenizer("bert"), 32)
    first = kind.TaskData(inputs, examples, **case.fields, **KEPT.get(task, {}))
    again = kind.TaskData(inputs, [], **json.loads(json.dumps(first.to_config())))
    assert again.to_config() == first.to_config()
    for some in (examples, examples[:1]):  # as many options as in training, however few there are
        jax.tree.map(np.testing.assert_array_equal, first.arrays(some), again.arrays(some))


def fit(module, rows, steps=100):
    """Trains on the rows; returns the losses and the outputs then, in one program."""
    params = tagging_data.draw_params(module, rows, 0.2)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-2))

    def loss(params):
        rngs = {"dropout": jax.random.key(0), "corrupt": jax.random.key(1)}
        sums = module.apply({"params": params}, rows, train=True, rngs=rngs)
        return sum(x.total / x.weight for x in sums.values() if x.train)

    def step(state, _):
        value, grads = jax.value_and_grad(loss)(state[0])
        updates, opt = tx.update(grads, state[1])
        return (optax.apply_updates(state[0], updates), opt), value

    @quick_jit
    def run(state):
        (params, _), losses = jax.lax.scan(step, state, length=steps)
        return losses, module.apply({"params": params}, rows, method="predict")

    return jax.device_get(run((params, tx.init(params))))
