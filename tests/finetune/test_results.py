"""Runs stand side by side with the evaluation that counts."""

import csv
import json

import pytest
from absl import flags
from absl.testing import flagsaver

from finetune import results
from pretrain.runtime.errors import UserError
from pretrain.training.reports.result_table import format_table
from tests.pretrain.training.reports.test_results import write_run


@pytest.fixture(autouse=True)
def parsed():
    with flagsaver.flagsaver():
        flags.FLAGS.mark_as_parsed()
        yield


def test_the_table_tells_pretrained_from_random_weights(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {"dev/accuracy": 0.5, "dev/loss": 1.0}
    tuned = write_run(tmp_path / "tuned", "", values, init="runs/x")
    random = write_run(tmp_path / "random", "", values, init="runs/x", random_init=True)
    scratch = write_run(tmp_path / "scratch", "", values | {"test/f1": 1.0}, init="")
    none = write_run(tmp_path / "none", "", init="")
    tuned, random, scratch, none = (x.relative_to(tmp_path) for x in (tuned, random, scratch, none))
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


def test_all_numbers_are_printed_where_a_program_reads_them(tmp_path, capsys):
    values = {"dev/accuracy": 0.5, "dev/loss": 1.0}
    run = str(write_run(tmp_path / "run", "", values, init="runs/x"))
    for form, read in (
        ("csv", lambda x: [*csv.DictReader(x.splitlines())]),
        ("json", json.loads),
    ):
        with flagsaver.flagsaver((results.PRINT, form)):
            results.main([run])
        (record,) = read(capsys.readouterr().out)
        numbers = record if form == "csv" else record["metrics"]
        assert (record["run"], float(numbers["dev/loss"])) == (run, 1.0)


def test_a_folder_of_seeds_is_its_runs(tmp_path):
    (tmp_path / "all").mkdir()
    for seed in (0, 1):
        write_run(tmp_path / "all" / f"seed-{seed}", "", {"dev/f1": 0.5 + seed / 4}, seed=seed)
    table = format_table(results.read_results([tmp_path / "all"]))
    assert "seed-1  random weights  1     0.7500" in table
    assert "mean of 2" in table
    assert "0.6250 +- 0.1768" in table
    with pytest.raises(UserError, match=r"^there is no folder .*none$"):
        results.read_results([tmp_path / "none"])
    with pytest.raises(UserError, match="holds no run"):
        results.read_results([tmp_path])
