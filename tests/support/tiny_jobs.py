"""Fine-tuning jobs so small that one takes seconds, in this process and on one device."""

import contextlib
import functools
from unittest import mock

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from configs.finetune import common
from finetune import initialize
from finetune import job as jobs
from pretrain.checkpoint import verification
from pretrain.checkpoint.paths import list_steps
from pretrain.distributed.sharding import make_mesh
from pretrain.runtime import run_config
from pretrain.training import loop
from pretrain.training.train_state import replace_params
from tests.support import shared_steps

L = 24
TRANSFORMER = dict(
    name="transformer",
    V=None,
    D=16,
    H=2,
    K=8,
    N=1,
    F=16,
    L=512,
    S=2,
    pooler=True,
    normed_embedding=True,
)


@pytest.fixture
def table(tmp_path):
    """A file of short texts; those with a certain word are "yes"."""
    words = ["ab", "cd", "ef", "gh", "ij", "kl", "mn"]
    rng = np.random.default_rng(0)
    rows = []
    for number in range(24):
        chosen = list(rng.choice(words[1:], 4))
        label = ("no", "yes")[number % 2]
        chosen[number % 4] = words[0] if number % 2 else chosen[0]
        rows.append(f"{' '.join(chosen)}\t{label}\t{number % 2 * 2.5}\n")
    path = tmp_path / "rows.tsv"
    path.write_text("".join(rows))
    return path


def recipe(path, init="", **changes) -> ConfigDict:
    """A recipe that classifies the rows of a table, with changes like {"optim.lr": 0.1}."""
    config = common.base()
    config.init = str(init)
    config.data = dict(
        format="table", header=False, texts=(0,), label=1, train=str(path), dev=str(path), test=""
    )
    config.task = dict(name="classify", metrics=("accuracy", "f1"), head=dict(dropout=0.0))
    config.batches = dict(B=8, L=L, eval_B=8)
    config.optim.update(lr=3e-3, steps=0, warmup=0.0)
    config.epochs = 2
    config.train.update(log_every=1, eval_every=3, save_every=2)
    config.update_from_flattened_dict(changes)
    return config


def several(path, init, kind="round_robin", **changes) -> ConfigDict:
    """Two tasks on the rows of a table: whether it is "yes", and a number."""
    config = recipe(path, init)
    data, task = config.data.to_dict(), config.task.to_dict()
    number = dict(name="regress", metrics=("pearson",), head=dict(dropout=0.1))
    del config.data, config.task
    config.tasks = dict(
        yes=dict(data=data, task=task, weight=2.0, batches=dict(L=16)),
        number=dict(data={**data, "label": 2, "test": str(path)}, task=number),
    )
    config.mixture = dict(kind=kind, only="")
    config.optim.update(weight_decay=0.1, steps=8)
    config.train.update(
        best="mean/both", means=dict(both=("number/dev/pearson", "yes/dev/accuracy")), eval_every=4
    )
    config.update_from_flattened_dict(changes)
    return config


def ignore(*_):
    pass


@contextlib.contextmanager
def one_device():
    one = functools.partial(make_mesh, devices=jax.devices()[:1])
    with shared_steps.train_on(1), mock.patch.object(initialize, "make_mesh", one):
        yield


def train(config, workdir, say=ignore):
    """Trains a job on one device; returns the final state."""
    job = jobs.build_job(config, say)
    workdir.mkdir(exist_ok=True)
    run_config.write_config(workdir, jobs.resolve_recipe(job, config).to_dict())
    jobs.save_job(job, workdir)
    with one_device():
        restore = initialize.restore_backbone(job.start, say, config.random_init)
        prepare = lambda state: replace_params(state, restore(state.params))  # noqa: E731
        layouts = job.train, job.evals
        return loop.run(config, workdir, job.task, *layouts, prepare, False, job.score).state


def read_best(workdir):
    """Step and content of the best checkpoint."""
    folder = workdir / "best" / "checkpoints"
    step, *_ = list_steps(folder)
    return step, verification.read_record(folder / str(step))
