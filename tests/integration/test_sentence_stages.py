"""ConSERT's stages follow each other by their recipes, and what they leave judges and embeds."""

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs.finetune import consert
from finetune import job as jobs
from finetune.prediction.predictor import Predictor
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.trained_run import load_backbone_params, load_run
from tests.support import tiny_jobs

WORDS = ["ab", "cd", "ef", "gh", "ij", "kl", "mn"]


def recipe(preset, folder, **changes):
    """A stage of a few steps; from scratch, where it begins with no run."""
    config = consert.get_config(preset)
    dev = {"data.dev": str(folder / "stsb-en-dev.csv"), "data.test": ""}
    train = {"joint": str(folder / "nli.csv"), "joint_unsup": str(folder)}[preset]
    few = {"batches.B": 8, "batches.L": 16, "batches.eval_B": 8, "optim.steps": 3}
    config.update_from_flattened_dict({**dev, **few, "data.train.path": train, **changes})
    config.train.update(eval_every=1, log_every=1, save_every=3)
    if not config.init:
        config.text_format = "bert"
        config.tokens = ConfigDict(dict(name="wordpiece", V=33))
        config.model = ConfigDict(tiny_jobs.TRANSFORMER)
    return config


@pytest.mark.slow
def test_a_stage_begins_with_the_best_of_the_one_before(tmp_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(2, 6))) for _ in range(48)]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    labels = ["entailment", "neutral", "contradiction", "-"] * 6
    nli = [f"{a},{b},{label}\n" for (a, b), label in zip(pairs, labels, strict=True)]
    (tmp_path / "nli.csv").write_text("premise,hypothesis,label\n" + "".join(nli))
    scored = "".join(f"{a},{b},{n / 4}\n" for n, (a, b) in enumerate(pairs))
    for part in ("train", "dev"):
        (tmp_path / f"stsb-en-{part}.csv").write_text(scored)

    first, second = tmp_path / "joint", tmp_path / "joint_unsup"
    tiny_jobs.train(recipe("joint", tmp_path, **{"optim.lr": 1e-2}), first)
    changes = {"init": str(first), "optim.lr": 0.0}
    state = tiny_jobs.train(recipe("joint_unsup", tmp_path, **changes), second)
    layout = Layout(make_mesh(devices=jax.devices()[:1]))
    best, _ = load_backbone_params(load_run(first), layout)
    jax.tree.map(np.testing.assert_array_equal, jax.device_get(state.params["backbone"]), best)
    assert "classifier" not in state.params

    predictor = Predictor(jobs.load_job(second), layout)
    pair = {"texts": list(pairs[0]), "label": 1.0, "where": "1"}
    single = {"texts": [pairs[0][0]], "label": None, "where": "2"}
    (line,), *_ = predictor.predict_lines([pair])
    assert -1 <= line["cosine"] <= 1
    (line,), *_ = Predictor(jobs.load_job(second), layout).predict_lines([single])
    assert len(line["vector"]) == tiny_jobs.TRANSFORMER["D"]
