"""Runs stand side by side with the evaluation that counts."""

import pytest

from finetune import results
from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
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
        assert results.read_result(run) == ("runs/x", step, rows[step - 1], since)


def test_an_evaluation_that_was_not_finite_is_never_the_best(tmp_path):
    first = {"dev/loss": float("nan"), "dev/f1": 0.25}
    run = write_run(tmp_path / "nan", "-dev/loss", first, init="x")
    assert results.read_result(run) == ("x", 1, {"dev/loss": None, "dev/f1": 0.25}, 0)
    assert "0.2500" in results.format_table([run])
    losses = [{"dev/loss": x} for x in (4.0, 3.0, float("inf"))]
    run = write_run(tmp_path / "inf", "-dev/loss", first, *losses, init="x")
    assert results.read_result(run) == ("x", 3, {"dev/loss": 3.0}, 1)


def test_the_table_tells_pretrained_from_random_weights(tmp_path, capsys):
    values = {"dev/accuracy": 0.5, "dev/loss": 1.0}
    tuned = write_run(tmp_path / "tuned", "", values, init="runs/x")
    random = write_run(tmp_path / "random", "", values, init="runs/x", random_init=True)
    scratch = write_run(tmp_path / "scratch", "", values | {"test/f1": 1.0}, init="")
    none = write_run(tmp_path / "none", "", init="")
    results.main([str(path) for path in (tuned, random, scratch, none)])
    rows = [
        [x.strip() for x in line.split("  ") if x] for line in capsys.readouterr().out.splitlines()
    ]
    assert rows == [
        ["run", "begun with", "step", "dev/accuracy", "test/f1"],
        [str(tuned), "runs/x", "1", "0.5000", "-"],
        [str(random), "random weights, runs/x", "1", "0.5000", "-"],
        [str(scratch), "random weights", "1", "0.5000", "1.0000"],
        [str(none), "not evaluated yet", "-", "-", "-"],
    ]


def test_a_folder_without_a_fine_tuned_run_is_refused(tmp_path):
    with pytest.raises(UserError, match="holds no run"):
        results.read_result(tmp_path)
    with pytest.raises(UserError, match="not fine-tuned"):
        results.read_result(write_run(tmp_path / "pretrained", ""))


def test_means_and_deviations_over_jobs_are_of_a_sample(capsys):
    stats = results.compute_stats([{"dev/accuracy": 0.5}, {"dev/accuracy": 0.7}])
    results.print_stats(stats, "2 seeds")
    assert capsys.readouterr().out == "dev/accuracy: 0.6000 +- 0.1414 of 2 seeds\n"
