"""GPT-1's second loss scores by the language-model head that was pretrained."""

import shutil

import jax
import numpy as np
from ml_collections import ConfigDict

from finetune import initialize
from finetune.job import build_task
from modules.heads import language_model
from pretrain.checkpoint import manager
from pretrain.inference.trained_run import opened
from pretrain.runtime.run_config import read_config, write_config
from tests.support.tiny_models import drawn, run

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run"]


def test_the_pretrained_head_is_restored_beside_its_backbone(run, tmp_path):
    workdir = shutil.copytree(run("clm").workdir, tmp_path / "run")
    write_config(workdir, read_config(workdir) | {"head": {"tied": True, "bias": True}})
    backbone = opened(workdir).backbone
    head = language_model.build(backbone, bias=True)
    biases = {"bias_V": np.arange(backbone.V, dtype=np.float32)}
    checkpoints = manager.Checkpoints(workdir, asynchronous=False)
    checkpoints.save(9, {"params": {"backbone": drawn(backbone), "head": biases}}, {})
    checkpoints.close()

    start = initialize.open_start(ConfigDict(dict(init=str(workdir))), list)
    examples = [dict(texts=["a b"], label="x"), dict(texts=["c"], label="y")]
    data, task = build_task(start, dict(name="classify", language_model=0.5), 16, examples)
    batch = data.training_arrays(examples) | {"weight_B": np.ones(2, np.float32)}
    fresh = task.init(jax.random.key(0), batch, train=False)["params"]
    restored = initialize.restore_backbone(start, lambda line: None)(fresh)
    got_V = restored["encoder"]["language_model_head"]["bias_V"]
    assert len(got_V) > head.V  # the format's new tokens have biases of their own
    np.testing.assert_array_equal(got_V[: head.V], biases["bias_V"])
    np.testing.assert_array_equal(got_V[head.V :], 0)
