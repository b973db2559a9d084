"""Every example of a file has its line, as the best weights tell it."""

import json

import jax
import numpy as np
import pytest

from configs.finetune import common
from finetune import datasets, job
from finetune.prediction import predictor as predictors
from finetune.prediction.streaming import read_blocks
from pretrain.checkpoint.manager import Checkpoints
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime.run_config import write_config
from tests.support import choice_data as cases
from tests.support import commands
from tests.support.choice_data import draw_params
from tests.support.compiler import quick_jit

TEXTS = ["the dog went out", "the sun came", "a cat came home", "why came the dog home", "rain"]
ROWS = [(TEXTS[i % 5] + " went" * (i // 5), "ny"[i % 2]) for i in range(11)]


def workdir(folder):
    """A run, fine-tuned in name only, whose weights are drawn at random; its best are others."""
    (folder / "train.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in ROWS))
    config = common.base()
    config.text_format, config.tokens = "bert", dict(name="wordpiece", V=36)
    config.model = cases.BACKBONES["bert"] | dict(V=None)
    config.data = dict(format="table", header=False, texts=(0,), label=1)
    config.data.train = str(folder / "train.tsv")
    config.task, config.batches = (
        dict(name="classify", metrics=("accuracy",)),
        dict(B=4, L=24, eval_B=4),
    )
    made = job.build_job(config, lambda line: None)
    write_config(folder, job.resolve_recipe(made, config).to_dict())
    job.save_job(made, folder)
    best = draw_params(made.task, made.train.batch(0))
    for name, step, params in (("", 9, jax.tree.map(np.negative, best)), ("best", 7, best)):
        kept = Checkpoints(folder / name, asynchronous=False)
        kept.save(step, {"params": params}, {})
        kept.close()
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return workdir(tmp_path_factory.mktemp("run"))


def predictor(run, devices=1, rows=0):
    layout = Layout(make_mesh(devices=jax.devices()[:devices]))
    return predictors.Predictor(job.load_job(run), layout, rows)


@pytest.fixture(scope="module")
def one(run):
    return predictor(run)


def table(folder, rows=ROWS, name="in.tsv"):
    path = folder / name
    path.write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    return str(path)


FIELDS = dict(header=False, texts=(0,), label=1)


def told(predictor, path, size=4096, fields=FIELDS, score=True):
    """(lines, metrics, what was said)."""
    lines, said = [], []
    values = predictors.predict_blocks(
        predictor,
        read_blocks(path, "table", fields, size),
        lambda e, x: lines.append((e, x)),
        said.append,
        score,
    )
    return lines, values, said


def test_blocks_change_nothing_and_lines_are_in_the_order_of_the_file(one, tmp_path):
    whole, values, _ = told(one, table(tmp_path))
    pieces, in_pieces, _ = told(one, table(tmp_path), size=3)
    assert pieces == whole
    assert in_pieces == values
    assert [example["texts"][0] for example, _ in whole] == [text for text, _ in ROWS]
    right = [line["label"] == label for (_, line), (_, label) in zip(whole, ROWS, strict=True)]
    assert values == {"accuracy": pytest.approx(sum(right) / len(ROWS))}
    assert len({line["probabilities"]["n"] for _, line in whole}) > 8


def test_the_weights_are_those_that_did_best(run, one, tmp_path):
    _, _, said = told(one, table(tmp_path))
    assert said[-1] == "11 examples, by the weights of step 7"
    tuned = job.load_job(run)
    examples = datasets.read("table", table(tmp_path), **FIELDS).examples[:4]
    predictors.predict_blocks(one, [datasets.Read(examples[:1])], lambda *_: None, said.append)
    assert said[-1] == "1 example, by the weights of step 7"
    rows = tuned.data.arrays(examples) | {"weight_B": np.ones(4, np.float32)}
    apply = quick_jit(lambda p, b: tuned.task.apply({"params": p}, b, method="predict"))
    expected = apply(draw_params(tuned.task, rows), rows)["logits_BC"]
    np.testing.assert_allclose(one(examples)["logits_BC"], expected, rtol=1e-4, atol=1e-5)


def test_eight_devices_tell_what_one_tells(run, one, tmp_path):
    eight = predictor(run, devices=8, rows=5)
    assert eight.B == 8
    ours, theirs = (told(each, table(tmp_path))[0] for each in (one, eight))
    for (_, a), (_, b) in zip(ours, theirs, strict=True):
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)


def test_examples_whose_label_is_not_known_are_told_but_not_scored(one, tmp_path):
    examples = datasets.read("table", table(tmp_path), **FIELDS).examples
    for example in examples[1::3]:
        example["label"] = None
    lines = []
    found = [datasets.Read(examples[:6]), datasets.Read(examples[6:])]
    values = predictors.predict_blocks(
        one, found, lambda e, x: lines.append((e, x)), lambda line: None
    )
    assert [line for _, line in lines] == [line for _, line in told(one, table(tmp_path))[0]]
    known = [(e["label"], x["label"]) for e, x in lines if e["label"] is not None]
    assert values["accuracy"] == pytest.approx(np.mean([a == b for a, b in known]))
    blind = told(one, table(tmp_path), fields=FIELDS | {"label": ""})
    assert [line for _, line in blind[0]] == [line for _, line in lines]
    assert blind[1] == told(one, table(tmp_path), score=False)[1] == {}


def test_outputs_of_more_and_fewer_options_are_joined():
    parts = [{"x_BO": np.ones((2, 3))}, {"x_BO": np.ones((1, 4))}]
    assert predictors.join_outputs(parts)["x_BO"].tolist() == [
        [1, 1, 1, 0],
        [1, 1, 1, 0],
        [1, 1, 1, 1],
    ]


@pytest.mark.slow
def test_the_command_writes_a_line_of_each_example_and_prints_the_metrics(run, tmp_path):
    source, out = table(tmp_path), tmp_path / "out.jsonl"
    words = ["-m", "finetune.predict", f"--workdir={run}", source, out]
    first = commands.run(*words)
    assert first.stdout.startswith("accuracy 0.")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["where"] for line in lines] == [f"{source}, line {i + 1}" for i in range(11)]
    again = commands.run(*words)
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1].startswith(f"error: {out} is there already")
