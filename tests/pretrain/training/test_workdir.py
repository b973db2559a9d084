"""A run's folder is opened by its recipe, or by one that computes the same."""

from pretrain.training import workdir

FREE = ("mesh.data: 1 -> 2", "execution.remat: 'none' -> 'full'", "evals.dev.B: 8 -> 4")
FREE += ("train.keep: 2 -> 3", "train.log_every: 1 -> 2", "profile: '' -> '1-2'")
FREE += ("num_seeds: 2 -> 3",)
BOUND = ("model.D: 8 -> 4", "train.parts: 1 -> 2", "train.keeps: 1 -> 2", "profiles: 1 -> 2")


def test_a_resumed_run_may_compute_otherwise_but_nothing_else():
    assert all(workdir.is_free(line) for line in FREE)
    assert not any(workdir.is_free(line) for line in BOUND)
