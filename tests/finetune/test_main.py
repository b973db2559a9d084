"""A job keeps its best, goes on where it broke off, and says what it came to."""

import contextlib
import functools
import itertools
import json
import os
import pathlib
import shutil
import threading
import time
from unittest import mock

import numpy as np
import pytest
from ml_collections import ConfigDict

from finetune import job as jobs
from finetune import main
from finetune.prediction.predictor import TerminatedError
from pretrain.inference.trained_run import load_run, weights_folder
from pretrain.runtime.errors import UserError
from pretrain.runtime.job_options import JobOptions
from pretrain.training import hooks, loop
from tests.support.tiny_jobs import one_device, read_best, recipe, table, train
from tests.support.tiny_models import run
from tests.support.tiny_runs import assert_same, written

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run", "table"]


def test_a_job_that_broke_off_goes_on_bit_for_bit(run, table, tmp_path, monkeypatch):
    settings = {"train.best": "-dev/loss", "optim.steps": 8, "model.dropout": 0.1}
    config = recipe(table, run("mlm").workdir, **settings)
    config.task.head.summary = "batch_norm"  # whose running averages are not to begin anew
    whole = train(config, tmp_path / "whole")
    assert np.abs(whole.params["head"]["input_norm"]["mean_D"]).min() > 0
    save = hooks.SaveCheckpoint.__call__

    def breaks(self, step, *arguments):
        save(self, step, *arguments)
        if step == 4:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(hooks.SaveCheckpoint, "__call__", breaks)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "broken")
    assert_same(train(config, tmp_path / "broken"), whole)
    assert read_best(tmp_path / "whole") == read_best(tmp_path / "broken")


@contextlib.contextmanager
def between_operations(workdir, call):
    """Calls `call(path)` before each change of a folder of checkpoints in `workdir`.

    Those of the best are slow: left to themselves, they would be the last.
    """
    lock = threading.Lock()

    def wrapped(operation, path, *args, **kwargs):
        if "checkpoints" in str(path) and str(workdir) in str(path):
            time.sleep(0.2 * ("best" in pathlib.Path(path).parts))  # without the lock
            with lock:
                call(pathlib.Path(path))
        return operation(path, *args, **kwargs)

    with contextlib.ExitStack() as stack:
        for name in ("mkdir", "rename", "replace", "rmdir", "unlink"):
            own = functools.partial(wrapped, getattr(os, name))
            stack.enter_context(mock.patch.object(os, name, own))
        yield


OFTEN = {"train.best": "-dev/loss", "optim.steps": 8, "train.eval_every": 2, "optim.lr": 0.01}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_any_operation_on_checkpoints_a_job_keeps_the_same_best(run, table, tmp_path):
    config, whole = recipe(table, run("mlm").workdir, **OFTEN), tmp_path / "whole"
    count = itertools.count()

    def snap(path):
        """What a kill at this moment leaves."""
        with contextlib.suppress(shutil.Error):  # a file has gone meanwhile
            shutil.copytree(whole, tmp_path / f"killed-{next(count)}")

    with between_operations(whole, snap):
        state = train(config, whole)
    for number in np.linspace(0, next(count) - 1, 20).astype(int):
        killed = tmp_path / f"killed-{number}"
        assert_same(train(config, killed), state)
        assert read_best(killed) == read_best(whole)
        assert written(killed) == written(whole)


@pytest.mark.slow
def test_a_best_that_is_lost_is_looked_for_anew(run, table, tmp_path):
    config = recipe(table, run("mlm").workdir, **OFTEN)
    train(config, tmp_path / "run")
    before = read_best(tmp_path / "run"), written(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "best")
    train(config, tmp_path / "run")
    assert (read_best(tmp_path / "run"), written(tmp_path / "run")) == before


def test_training_ends_without_progress_and_the_best_is_what_is_opened(run, table, tmp_path):
    settings = {
        "train.best": "dev/accuracy",
        "train.stop_after": 2,
        "train.eval_every": 2,
        "optim.steps": 60,
        "optim.lr": 0.0,
        "train.save_every": 100,
    }
    config = recipe(table, run("mlm").workdir, **settings)
    state = train(config, tmp_path / "run")
    assert int(state.step) == 6  # the first evaluation is the best for ever
    assert read_best(tmp_path / "run")[0] == 2
    assert weights_folder(load_run(tmp_path / "run")) == tmp_path / "run" / "best"
    assert int(train(config, tmp_path / "run").step) == 6


ALONE = JobOptions(joins=False)


def test_a_job_whose_steps_were_all_skipped_is_no_success(run, table, tmp_path):
    config = recipe(table, run("mlm").workdir, **{"optim.steps": 2})

    def finished(*_, keep, **__):
        keep()
        return loop.Result(mock.Mock(step=2, skipped=2), finished=True, best=None)

    with (
        one_device(),
        mock.patch.object(loop, "run", side_effect=finished),
        pytest.raises(UserError, match="all 2 steps were skipped"),
    ):
        main.main(config, tmp_path / "run", ALONE)


@pytest.mark.parametrize(("task", "joined"), [("distil", [(9, 8)]), ("classify", []), ("no", [])])
def test_processes_join_before_a_teacher_predicts(task, joined, tmp_path, monkeypatch):
    calls: list[tuple] = []
    monkeypatch.setattr(main.processes, "join", lambda *limits: calls.append(limits))
    monkeypatch.setattr(main.jobs, "build_job", mock.Mock(side_effect=UserError("no data")))
    config = ConfigDict(dict(data={}, task=dict(name=task), batches={}))
    with pytest.raises(UserError, match="no data"):
        main.train_job(config, tmp_path, JobOptions(heartbeat=9, join_timeout=8))
    assert calls == joined
    with pytest.raises(UserError, match="no data"):
        main.train_job(config, tmp_path, ALONE)
    assert calls == joined


@pytest.mark.slow
def test_seeds_are_runs_of_their_own_with_mean_and_deviation(run, table, tmp_path, capsys):
    config = recipe(table, run("mlm").workdir, **{"num_seeds": 2, "optim.steps": 2})
    with one_device():
        main.main(config, tmp_path / "runs", ALONE)
    assert capsys.readouterr().out.count("of 2 seeds") == 3
    for seed in ("seed-0", "seed-1"):
        assert (tmp_path / "runs" / seed / "checkpoints" / "2").exists()
        predicted = (tmp_path / "runs" / seed / "predictions" / "dev.jsonl").read_text()
        assert len(predicted.splitlines()) == 24


def test_the_mean_over_folds_is_printed_and_written(tmp_path, capsys):
    data = dict(train="a", folds=3, fold=None)
    config = ConfigDict(dict(seed=5, num_seeds=1, data=data))
    scores = [({"test/accuracy": x}, True) for x in (0.5, 0.7, 0.9)]
    with mock.patch.object(main, "train_job", side_effect=scores):
        main.main(config, tmp_path, ALONE)
    assert capsys.readouterr().out == "test/accuracy: 0.7000 +- 0.2000 of 3 folds\n"
    written = json.loads((tmp_path / main.STATS).read_text())
    assert written["jobs"]["fold-2"] == {"test/accuracy": 0.9}
    assert written["deviation"] == pytest.approx({"test/accuracy": 0.2})


def test_predictions_that_were_broken_off_are_still_to_be_made(tmp_path):
    broken = mock.Mock()
    broken.return_value.predict_lines.side_effect = TerminatedError("told to terminate")
    job = mock.Mock(parts={"": mock.Mock(evals={"dev": None}, examples={"dev": []})})
    with mock.patch.object(main, "Predictor", broken), mock.patch.object(jobs, "load_job"):
        assert not main.write_predictions(job, tmp_path, {})
    assert not list((tmp_path / "predictions").iterdir())


def test_the_summary_says_whether_there_is_more_to_do(tmp_path, capsys):
    config = recipe(tmp_path, **{"optim.steps": 9, "train.best": "-dev/loss"})
    best = hooks.Evaluation(2, {"dev/loss": 0.25}, 3)
    for step, is_done in ((9, True), (6, True), (6, False)):
        main.print_summary(config, tmp_path, step, best, is_done)
    first, early, stopped = capsys.readouterr().out.split("step 2 (best by -dev/loss)")[:3]
    assert first.startswith("Finished at step 9 of 9.\n")
    assert "\nFinished at step 6 of 9: 3 evaluations did not better the best.\n" in early
    assert "dev/loss 0.2500" in early
    assert "\nStopped at step 6 of 9.\n" in stopped


@pytest.mark.parametrize(
    ("is_trained", "is_predicted", "said"),
    [
        (False, True, "Stopped at step 2 of 2: training is done, the last evaluation is still"),
        (True, False, "Stopped at step 2 of 2: training is done, predictions are still missing."),
        (True, True, "Finished at step 2 of 2.\n"),
    ],
)
def test_what_is_missing_behind_the_last_step_is_told(
    run, table, tmp_path, capsys, is_trained, is_predicted, said
):
    config = recipe(table, run("mlm").workdir, **{"optim.steps": 2})
    best = hooks.Evaluation(2, {"dev/loss": 0.25})
    result = loop.Result(mock.Mock(step=2, skipped=0), finished=is_trained, best=best)
    with (
        one_device(),
        mock.patch.object(loop, "run", return_value=result),
        mock.patch.object(main, "write_predictions", return_value=is_predicted),
    ):
        assert main.main(config, tmp_path / "run", ALONE) == 75 * (said[0] == "S")
    out = capsys.readouterr().out
    assert said in out
    assert ("Next: the same command again" in out) == (said[0] == "S")
