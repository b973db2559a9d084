"""A run returns what it has come to; nobody reads its files to learn that."""

import functools
from unittest import mock

import pytest

from pretrain.distributed import processes
from tests.support import regression
from tests.support import tiny_runs as toys


@pytest.fixture
def run(tmp_path):
    """(changes of the recipe) -> the result of the run in this test's folder."""
    return functools.partial(regression.run, tmp_path)


def evaluations(workdir) -> list[dict]:
    return [line for line in toys.written(workdir) if any("/" in name for name in line)]


def test_a_finished_run_returns_its_last_evaluation_again_and_again(run, tmp_path):
    results = [run(), run()]
    line = evaluations(tmp_path)[-1]
    for result in results:
        assert result.finished
        assert result.best.step == int(result.state.step) == line["step"]
        assert {"step": result.best.step, **result.best.values} == line


def test_a_run_that_was_stopped_is_not_finished(run):
    with mock.patch.object(processes.Stop, "__call__", side_effect=[False, False, True]):
        result = run(train__eval_every=0)
    assert (result.finished, result.best) == (False, None)
    assert int(result.state.step) == 3
    assert run().finished


def test_the_best_evaluation_counts_where_the_recipe_names_one(run, tmp_path):
    result = run(train__best="-held_out/loss", train__eval_every=2)  # the first, which is lowest
    first, *later = evaluations(tmp_path)
    assert result.best.step == first["step"]
    assert result.best.since == len(later)


def test_a_warmup_as_long_as_the_run_is_told_at_its_start(run, capsys):
    run(optim__warmup=6)
    said = capsys.readouterr().err
    assert "optim.warmup=6 of 6 steps: the rate never reaches optim.lr\n" in said
    assert said.index("beginning at step 0") < said.index("optim.warmup") < said.index("held_out")
