"""Runs stand side by side with the evaluation that counts."""

import pytest

from finetune import results
from pretrain.runtime.errors import UserError
from tests.pretrain.training.reports.test_results import write_run


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


def test_runs_that_differ_by_their_seed_have_a_mean(tmp_path):
    sweep = {"low-0": (1e-4, 0, 3.0), "low-1": (1e-4, 1, 4.0), "high": (0.1, 0, 9.0)}
    for name, (lr, seed, loss) in sweep.items():
        recipe = dict(seed=seed, optim={"lr": lr}, objective={"name": "mlm"})
        write_run(tmp_path / name, "", {"held_out/loss": loss}, **recipe)
    lines = results.format_table([tmp_path / name for name in sweep]).splitlines()
    rows = [line.split() for line in lines]
    assert rows[0][-3:] == ["held_out/loss", "differs", "in"]
    assert [row[-2:] for row in rows[1:3]] == [
        ["3.0000", "optim.lr=0.0001"],
        ["4.0000", "optim.lr=0.0001"],
    ]
    assert rows[3] == ["mean", "of", "2", "3.5000", "+-", "0.7071", "optim.lr=0.0001"]
    assert rows[4][-2:] == ["9.0000", "optim.lr=0.1"]
    assert len(rows) == 5


def test_a_folder_of_seeds_is_its_runs(tmp_path):
    (tmp_path / "all").mkdir()
    for seed in (0, 1):
        write_run(tmp_path / "all" / f"seed-{seed}", "", {"dev/f1": 0.5 + seed / 4}, seed=seed)
    table = results.format_table([tmp_path / "all"])
    assert "seed-1  random weights  1     0.7500" in table
    assert "mean of 2" in table
    assert "0.6250 +- 0.1768" in table
    with pytest.raises(UserError, match=r"^there is no folder .*none$"):
        results.format_table([tmp_path / "none"])
    with pytest.raises(UserError, match="holds no run"):
        results.format_table([tmp_path])
