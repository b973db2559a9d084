"""Several tasks share a backbone: what is not of a step stays, and a run can be resumed."""

import json
from unittest import mock

import jax
import numpy as np
import pytest
from absl.testing import flagsaver

from finetune import initialize, main
from finetune import job as jobs
from finetune.several.shared_tasks import weigh_metrics
from modules.metrics import Sum
from pretrain.checkpoint import named_leaves
from pretrain.data.batches import split_tasks
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.trained_run import load_named_params, load_run
from pretrain.runtime.errors import UserError
from pretrain.training import hooks, loop
from pretrain.training.train_config import TrainConfig
from tests.support import tiny_jobs
from tests.support.tiny_jobs import ignore, one_device, several, table
from tests.support.tiny_models import run
from tests.support.tiny_runs import assert_same, written

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run", "table"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("several")


@pytest.fixture
def trained(run, table, folder):
    """The folder of a whole run, and its recipe."""
    config = several(table, run("mlm").workdir)
    if not (folder / "whole").exists():
        tiny_jobs.train(config, folder / "whole")
    return folder / "whole", config


def leaves(tree, task=""):
    return {k: np.array(x) for k, x in named_leaves.flatten(tree).items() if f"tasks_{task}" in k}


def test_a_step_leaves_another_task_s_parameters_and_moments_to_the_bit(run, table):
    config = several(table, run("mlm").workdir)
    job = jobs.build_job(config, ignore)
    plan = TrainConfig(**config.train)
    with one_device():
        steps, *_ = loop.build_steps(config, plan, "", job.task, job.train, job.evals, ())
        state = steps.init()
        for step in range(3):
            batch = job.train.batch(step)
            ((present, _),) = split_tasks(batch).items()
            absent = {"yes": "number", "number": "yes"}[present]
            before = {x: leaves((state.params, state.opt), x) for x in ("yes", "number")}
            state, _ = steps.train(state, steps.layout.shard_batch(batch, 8))
            after = {x: leaves((state.params, state.opt), x) for x in ("yes", "number")}
            assert len(before[absent]) == len(before[present]) > 5
            assert_same(before[absent], after[absent])
            changed = [(before[present][k] != x).any() for k, x in after[present].items()]
            assert all(changed)


def test_a_run_broken_off_within_an_epoch_goes_on_bit_for_bit(run, table, tmp_path, trained):
    whole, config = trained
    save = hooks.SaveCheckpoint.__call__

    def breaks(self, step, *arguments):
        save(self, step, *arguments)
        if step == 2:
            raise KeyboardInterrupt

    with (
        mock.patch.object(hooks.SaveCheckpoint, "__call__", breaks),
        pytest.raises(KeyboardInterrupt),
    ):
        tiny_jobs.train(config, tmp_path / "broken")
    tiny_jobs.train(config, tmp_path / "broken")
    runs = [load_run(x) for x in (whole, tmp_path / "broken")]
    layout = Layout(make_mesh(devices=jax.devices()[:1]))
    assert_same(*(load_named_params(x, layout)[0] for x in runs))
    assert written(whole) == written(tmp_path / "broken")


def test_metrics_bear_the_task_s_name_and_the_mean_chooses_the_best(trained):
    folder, config = trained
    lines = written(folder)
    evaluations = [x for x in lines if "mean/both" in x]
    assert len(evaluations) == 2
    for x in evaluations:
        assert x["mean/both"] == pytest.approx(
            sum(x[name] for name in config.train.means.both) / 2, abs=1e-6
        )
        assert {"number/test/pearson", "yes/dev/loss"} <= x.keys()
    steps = [{k for k in x if k.endswith("_loss")} for x in lines if "lr" in x]
    assert {"number_loss"} in steps
    assert {"yes_loss"} in steps


def test_one_task_goes_on_from_the_shared_run_with_its_head(trained, table):
    folder, _ = trained
    said, one = [], several(table, folder, **{"mixture.only": "yes"})
    job = jobs.build_job(one, ignore)
    assert job.start.heads == ("yes",)
    with one_device():
        plan = TrainConfig(**one.train)
        steps, *_ = loop.build_steps(one, plan, "", job.task, job.train, job.evals, ())
        params = initialize.restore_backbone(job.start, said.append)(steps.init().params)
        shared, _ = load_named_params(load_run(folder), steps.layout)
    assert not [line for line in said if line.endswith(": new")]
    for name, x in named_leaves.flatten(params).items():
        np.testing.assert_array_equal(x, shared[name])


def test_one_task_of_a_recipe_without_means_is_trained_alone(run, table):
    config = several(table, run("mlm").workdir, **{"mixture.only": "number"})
    del config.train.means
    config.train.best = ""
    job = jobs.build_job(config.lock(), ignore)
    assert tuple(job.parts) == ("number",)


def test_a_task_of_a_run_is_predicted_by_its_name(trained, table, tmp_path):
    folder, config = trained
    with one_device(), flagsaver.flagsaver():
        job = jobs.build_job(config, ignore)
        assert main.write_predictions(job, folder, {})
    lines = (folder / "predictions" / "number" / "dev.jsonl").read_text().splitlines()
    assert "value" in json.loads(lines[0])
    assert "label" in (folder / "predictions" / "yes" / "dev.jsonl").read_text()
    with pytest.raises(UserError, match=r"--task=: .* has number, yes"):
        jobs.load_job(folder)


def test_all_tasks_together_are_minimized_by_their_weighted_sum(run, table):
    config = several(table, run("mlm").workdir, "all")
    job = jobs.build_job(config, ignore)
    batch = job.train.batch(0)
    both = split_tasks(batch)
    assert set(both) == {"yes", "number"}
    metrics = {
        name: {"loss": Sum(3.0, 6.0, train=True), "l2": Sum(1.0, 4.0, train=True)} for name in both
    }
    loss = weigh_metrics(metrics, {"yes": 2.0, "number": 1.0})["loss"]
    assert float(loss.total / loss.weight) == pytest.approx(3 * (0.5 + 0.25))
