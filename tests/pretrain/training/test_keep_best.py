"""The best parameters are kept for as long as a checkpoint names them."""

import json
import math
import shutil

import numpy as np
import pytest

from pretrain.checkpoint.manager import Checkpoints
from pretrain.checkpoint.paths import list_steps
from pretrain.runtime.errors import UserError
from pretrain.training.hooks import NotFiniteError, Report
from pretrain.training.keep_best import KeepBest
from pretrain.training.reports.progress_line import Progress
from pretrain.training.train_state import State

WEIGHTS = {"x": np.ones(3, np.float32)}


def keeper(saved, run, metric="-dev/loss", patience=0) -> KeepBest:
    return KeepBest(1, saved, run, WEIGHTS, metric, patience, Progress(9))


def judge(keep_best, step, value, params=WEIGHTS) -> Report:
    """Calls the hook after an evaluation of this loss."""
    report = Report(held_out={"dev/loss": value})
    keep_best(step, State(step, params, {}, (), None, 0, 0), report)
    return report


def load(keep_best, state) -> Report:
    """Restores the hook, in the report of the restored step."""
    report = Report()
    keep_best.load_state_dict(json.loads(json.dumps(state)), report)
    return report


@pytest.fixture
def judged(tmp_path):
    """The hook at step 4 of a run whose checkpoint of step 2 names another, and what it names."""
    saved, run = Checkpoints(tmp_path / "best", keep=None), Checkpoints(tmp_path / "run")
    keep_best = keeper(saved, run)
    judge(keep_best, 2, 2.0)
    state = keep_best.state_dict()
    run.save(2, WEIGHTS, {"hooks": {keep_best.name: state}})
    judge(keep_best, 4, 1.0)
    saved.wait()
    assert list_steps(saved.folder) == [4, 2]
    yield keep_best, state
    saved.close()
    run.close()


def test_a_best_that_the_run_never_came_to_is_not_kept(judged):
    keep_best, state = judged
    assert not load(keep_best, state).pending
    assert list_steps(keep_best.saved.folder) == [2]
    assert keep_best.state_dict() == state


@pytest.mark.parametrize("damage", [shutil.rmtree, lambda x: (x / "record").rename(x / "gone")])
def test_a_lost_best_is_named_and_asks_for_an_evaluation(judged, caplog, damage):
    keep_best, state = judged
    damage(keep_best.saved.folder / "2")
    assert load(keep_best, state).pending == [keep_best.name]
    assert "the best weights, of step 2, are lost" in caplog.text
    assert keep_best.evaluation is None
    judge(keep_best, 2, 3.0)
    keep_best.saved.wait()
    assert list_steps(keep_best.saved.folder) == [2]


def test_a_best_without_any_checkpoint_of_the_run_is_moved_aside(judged, caplog):
    keep_best, _ = judged
    shutil.rmtree(keep_best.run.folder)  # by hand
    assert not load(keep_best, {}).stop
    assert list_steps(keep_best.saved.folder) == []
    aside = keep_best.saved.folder.with_name("checkpoints-refused")
    assert list_steps(aside) == [4, 2]
    assert "no checkpoint names what is in" in caplog.text


def test_weights_that_overflow_are_refused_in_a_line(tmp_path):
    both = [Checkpoints(tmp_path / name, keep=None) for name in ("best", "run")]
    with pytest.raises(NotFiniteError, match=r"params/x: the weights overflowed"):
        judge(keeper(*both), 1, 1.0, {"x": np.float32(np.nan)})
    for checkpoints in both:
        checkpoints.close()


def test_only_what_is_better_is_kept_until_patience_ends(tmp_path):
    saved, steps = Checkpoints(tmp_path, keep=None), []
    saved.save = lambda step, *_: steps.append(step)
    keep_best = keeper(saved, saved, patience=2)
    judge(keep_best, 0, math.nan)
    losses = [3.0, 2.0, 2.0, 1.5, 1.6, 1.7]
    reports = [judge(keep_best, step, value) for step, value in enumerate(losses, 1)]
    assert steps == [1, 2, 4]
    assert [x.is_finished for x in reports] == [False] * 5 + [True]
    assert (keep_best.evaluation.step, keep_best.evaluation.since) == (4, 2)
    again = keeper(saved, saved, patience=2)
    saved.has = lambda step, like: step == 4
    report = load(again, keep_best.state_dict())
    assert again.state_dict() == keep_best.state_dict()
    assert report.is_finished
    with pytest.raises(UserError, match="there are dev/loss"):
        judge(keeper(saved, saved, "dev/f1"), 1, 1.0)


def test_a_step_without_an_evaluation_is_not_judged(tmp_path):
    keep_best = keeper(None, None, patience=1)
    keep_best(1, None, Report())
    assert keep_best.since == 0
