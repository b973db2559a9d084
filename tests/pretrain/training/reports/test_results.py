"""A run's result is the evaluation that counts."""

import pytest

from pretrain.runtime import run_config
from pretrain.training.reports import results
from pretrain.training.reports.metrics_file import Writer


def write_run(folder, best, *evaluations, **recipe):
    """A run whose evaluations at steps 1, 2, ... had these numbers."""
    folder.mkdir()
    run_config.write_config(folder, {"train": {"best": best}, **recipe})
    writer = Writer(folder, 0)
    for step, values in enumerate(evaluations, 1):
        writer.write(step, loss=1.0)
        writer.write(step, **values)
    writer.close()
    return folder


def test_the_best_evaluation_counts_or_the_last(tmp_path):
    rows = [{"dev/f1": x, "dev/loss": 1.0} for x in (0.25, 0.75, 0.5)]
    for best, step, since in (("dev/f1", 2, 1), ("-dev/f1", 1, 2), ("", 3, 0)):
        run = write_run(tmp_path / f"run {best.replace('/', ' ')}", best, *rows, init="runs/x")
        assert results.read_result(run)[1:] == ("runs/x", step, rows[step - 1], since)


def test_an_evaluation_that_was_not_finite_is_never_the_best(tmp_path):
    first = {"dev/loss": float("nan"), "dev/f1": 0.25}
    run = write_run(tmp_path / "nan", "-dev/loss", first, init="x")
    assert results.read_result(run)[1:] == ("x", 1, {"dev/loss": None, "dev/f1": 0.25}, 0)
    losses = [{"dev/loss": x} for x in (4.0, 3.0, float("inf"))]
    run = write_run(tmp_path / "inf", "-dev/loss", first, *losses, init="x")
    assert results.read_result(run)[1:] == ("x", 3, {"dev/loss": 3.0}, 1)


def test_a_run_of_before_it_had_a_best_has_its_last_evaluation(tmp_path):
    run = write_run(tmp_path / "run", "", {"held_out/loss": 2.0}, {"held_out/loss": 1.0})
    run_config.write_config(run, {"train": {}})
    assert results.read_result(run).values == {"held_out/loss": 1.0}


def test_means_and_deviations_over_jobs_are_of_a_sample(capsys):
    stats = results.compute_stats([{"dev/accuracy": 0.5}, {"dev/accuracy": 0.7}])
    results.print_stats(stats, "2 seeds")
    assert capsys.readouterr().out == "dev/accuracy: 0.6000 +- 0.1414 of 2 seeds\n"


def test_a_mean_leaves_no_job_out(capsys):
    # A fold without such questions has no such metric; another one's loss was not finite.
    jobs = [{"f1": 0.5, "loss": None}, {"f1": 0.7, "loss": 1.0, "NoAns_f1": 0.2}]
    stats = results.compute_stats([*jobs, {"f1": 0.6, "loss": float("nan"), "NoAns_f1": 0.2}])
    assert stats["mean"] == {"f1": pytest.approx(0.6), "loss": None, "NoAns_f1": None}
    results.print_stats(stats, "3 folds")
    assert "loss: nan +- nan of 3 folds\n" in capsys.readouterr().out
