"""A run's folder is opened by its recipe, or by one that computes the same."""

import pytest
from ml_collections import ConfigDict

from pretrain.runtime.errors import UserError
from pretrain.runtime.job_options import JobOptions
from pretrain.training import workdir

FREE = ("mesh.data: 1 -> 2", "execution.remat: 'none' -> 'full'", "evals.dev.B: 8 -> 4")
FREE += ("train.keep: 2 -> 3", "train.log_every: 1 -> 2", "profile: '' -> '1-2'")
FREE += ("num_seeds: 2 -> 3",)
BOUND = ("model.D: 8 -> 4", "train.parts: 1 -> 2", "train.keeps: 1 -> 2", "profiles: 1 -> 2")


def test_a_resumed_run_may_compute_otherwise_but_nothing_else():
    assert all(workdir.is_free(line) for line in FREE)
    assert not any(workdir.is_free(line) for line in BOUND)


def recipe(**optim) -> ConfigDict:
    return ConfigDict(dict(train=dict(keep=2), optim=dict(lr=0.1, steps=9, **optim)))


@pytest.mark.parametrize("accepts", [False, True])
def test_a_value_that_no_run_could_have_is_refused_before_it_is_compared(tmp_path, accepts):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text('{"format": 1, "optim": {"name": "adamw"}}')
    there = sorted(tmp_path.iterdir())
    options = JobOptions(joins=False, accept_changes=accepts)
    for config, named in ((recipe(name="lion"), "'lion' is none of adamw"), (recipe(x=1), "'x'")):
        with pytest.raises(UserError, match=named), workdir.open_workdir(config, tmp_path, options):
            pass
    assert sorted(tmp_path.iterdir()) == there
