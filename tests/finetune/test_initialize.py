"""A job begins with another's backbone, to the bit, or from scratch."""

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from finetune import initialize
from finetune import job as jobs
from pretrain.training import logging
from tests.support import tagging_data, tiny_jobs
from tests.support.tiny_jobs import table
from tests.support.tiny_models import KINDS, drawn, run
from tests.support.tiny_runs import assert_same

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run", "table"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_backbone_is_restored_to_the_bit_and_named(run, table, kind):
    said = []
    job = jobs.build_job(tiny_jobs.recipe(table, run(kind).workdir), tiny_jobs.ignore)
    new = jax.device_put(tagging_data.drawn(job.task, job.train.batch(0)), jax.devices()[0])
    with tiny_jobs.one_device():
        params = initialize.restore_backbone(job.start, said.append)(new)
        assert_same(initialize.restore_backbone(job.start, said.append, True)(new), new)
    assert "all parameters are new" in said.pop()
    expected = dict(drawn(run(kind).backbone))
    rows = dict(params["backbone"])
    if kind == "clm":  # whose task has tokens of its own
        old, both = expected.pop("token_VD"), rows.pop("token_VD")
        assert_same(both, np.concatenate([old, new["backbone"]["token_VD"][len(old) :]]))
    assert_same(rows, expected)
    assert_same(params["head"], new["head"])
    fates = dict(line.strip().rsplit(": ", 1) for line in said[1:])
    assert len(fates) == len(jax.tree.leaves(params))
    assert {fate for name, fate in fates.items() if name.startswith("head")} == {"new"}
    of_backbone = {fate for name, fate in fates.items() if name.startswith("backbone")}
    assert of_backbone == {"restored"} | ({"restored, and 3 new rows"} if kind == "clm" else set())


def test_a_network_from_scratch_learns_a_task(table, tmp_path):
    model = dict(
        name="transformer",
        V=None,
        D=16,
        H=2,
        K=8,
        N=1,
        F=16,
        L=tiny_jobs.L,
        S=2,
        pooler=True,
        attention="bi",
        norm="post",
        normed_embedding=True,
        init_scale=0.2,
        dropout=0.0,
        attention_dropout=0.0,
    )
    recipe = tiny_jobs.recipe(table, **{"optim.steps": 80, "optim.lr": 0.01})
    recipe.train.update(eval_every=80, log_every=80, save_every=80)
    recipe.text_format, recipe.model = "bert", ConfigDict(model)
    recipe.tokens = ConfigDict(dict(name="wordpiece", V=30))
    said = []
    tiny_jobs.train(recipe, tmp_path / "run", said.append)
    assert "all parameters are new: init is ''" in said
    assert logging.read_lines(tmp_path / "run" / "metrics.jsonl")[-1]["dev/accuracy"] > 0.9
