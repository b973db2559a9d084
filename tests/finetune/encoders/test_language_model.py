"""GPT-1's second loss is of the next tokens, scored by the head that was pretrained."""

import shutil

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from finetune import initialize
from finetune.job import build_task
from finetune.starting_point import open_start
from modules.backbones import text_mask
from modules.heads import language_model
from pretrain.checkpoint import manager
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from pretrain.runtime.run_config import read_config, write_config
from tests.support import tagging_data, text_tasks
from tests.support.tagging_data import told
from tests.support.tiny_models import draw_params, run

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run"]


def test_the_pretrained_head_is_restored_beside_its_backbone(run, tmp_path):
    workdir = shutil.copytree(run("clm").workdir, tmp_path / "run")
    write_config(workdir, read_config(workdir) | {"head": {"tied": True, "bias": True}})
    backbone = load_run(workdir).backbone
    head = language_model.build(backbone, bias=True)
    biases = {"bias_V": np.arange(backbone.V, dtype=np.float32)}
    checkpoints = manager.Checkpoints(workdir, asynchronous=False)
    checkpoints.save(9, {"params": {"backbone": draw_params(backbone), "head": biases}}, {})
    checkpoints.close()

    start = open_start(ConfigDict(), load_run(workdir))
    examples = [dict(texts=["a b"], label="x"), dict(texts=["c"], label="y")]
    data, task = build_task(start, dict(name="classify", language_model=0.5), 16, examples)
    batch = data.training_arrays(examples) | {"weight_B": np.ones(2, np.float32)}
    fresh = jax.device_put(tagging_data.draw_params(task, batch), jax.devices()[0])
    restored = initialize.restore_backbone(start, lambda line: None)(fresh)
    got_V = restored["encoder"]["language_model_head"]["bias_V"]
    assert len(got_V) > head.V  # the format's new tokens have biases of their own
    np.testing.assert_array_equal(got_V[: head.V], biases["bias_V"])
    new_V = fresh["encoder"]["language_model_head"]["bias_V"]
    np.testing.assert_array_equal(got_V[head.V :], new_V[head.V :])


def test_the_next_tokens_loss_is_added_and_the_task_s_unchanged():
    case, plain = (build_with(weight) for weight in (0.5, 0.0))
    metrics, _ = case.run(case.params, case.batch)
    loss = plain.run(case.params, case.batch)[0]["loss"]
    assert float(metrics["loss"].total) == pytest.approx(float(loss.total))
    backbone, params = text_tasks.gpt()[1], case.params["backbone"]
    tokens_BL, valid_BL = case.batch["tokens_BL"], case.batch["valid_BL"]
    mask = text_mask(backbone, valid_BL=valid_BL)
    h_BLD = told(backbone, params, tokens_BL, None, mask=mask, train=False).h
    logits_BLV = np.float64(h_BLD) @ np.float64(params["token_VD"]).T
    log_BLV = logits_BLV - np.log(np.exp(logits_BLV).sum(-1, keepdims=True))
    next_BL = np.take_along_axis(log_BLV[:, :-1], tokens_BL[:, 1:, None], 2)[..., 0]
    read_BL = valid_BL[:, 1:]
    assert float(metrics["lm_loss"].weight) == read_BL.sum()
    expected = -0.5 * (next_BL * read_BL).sum()
    assert float(metrics["lm_loss"].total) == pytest.approx(expected, rel=1e-4)


def build_with(weight):
    return text_tasks.build(text_tasks.gpt(), language_model=weight)


def test_a_backbone_that_reads_both_ways_is_refused():
    with pytest.raises(UserError, match="reads from left to right"):
        text_tasks.build(text_tasks.bert(), language_model=0.5)
