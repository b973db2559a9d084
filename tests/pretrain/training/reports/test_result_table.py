"""Results fit a terminal, with the numbers that say most; CSV and JSON have all of them."""

import csv
import json

from pretrain.training.reports import result_table
from pretrain.training.reports.results import Result, format_score

MANY = {f"held_out/{name}": 1.0 for name in ("nsp_accuracy", "nsp_loss", "accuracy", "unigram")}


def result(objective, values=None, **config):
    values = {"held_out/loss": 2.0} if values is None else values
    named = {key.replace("__", "."): value for key, value in config.items()}
    return Result({"objective.name": objective} | named, "random weights", 10, values, 0)


def wide(seed=0, objective="mlm", **config):
    """A pretraining run whose recipe has many keys, and whose evaluation many numbers."""
    sizes = {f"model__size_{i}": f"{objective}-{i}" for i in range(40)}
    values = MANY | {"held_out/loss": 2.0 + seed, "held_out/perplexity": 1e8}
    return result(objective, values, **sizes, seed=seed, **config)


def test_no_line_is_wider_than_the_terminal():
    results = {"runs/mlm": wide(), "runs/clm": wide(objective="clm"), "x" * 90: wide(objective="b")}
    for width in (80, 110, 200):
        lines = result_table.format_table(results, width).splitlines()
        assert max(map(len, lines)) <= width
        assert lines[0].split()[-1].startswith("held_out/")


def test_the_metric_of_train_best_comes_first_then_the_loss_and_what_guessing_gives():
    assert result_table.rank_metrics([wide()])[:3] == [
        "held_out/loss",
        "held_out/unigram",
        "held_out/accuracy",
    ]
    best = wide(train__best="-held_out/nsp_loss")
    assert result_table.rank_metrics([best])[0] == "held_out/nsp_loss"


def test_numbers_without_room_are_named_below():
    lines = result_table.format_table({"runs/mlm": wide()}, 80).splitlines()
    shown = lines[0].split()[4:]
    assert "held_out/loss" in shown
    below = " ".join(lines[lines.index("") + 1 :])
    hidden = below.removeprefix("not shown, in --print=csv or json: ")
    assert sorted([*shown, *hidden.split(", ")]) == sorted([*MANY, *wide().values][4:])


def test_recipes_of_other_systems_are_told_apart_by_their_parts_first():
    results = {"runs/a": wide(), "runs/b": wide(objective="clm", corpus__source="text:b")}
    lines = result_table.format_table(results, 110).splitlines()
    assert lines[2].startswith("  objective=mlm size_0=mlm-0 ")
    assert lines[4].startswith("  objective=clm source=text:b size_0=clm-0 ")
    words = [word for word in lines[4].split() if "=" in word]
    assert lines[4].endswith(f" and {42 - len(words)} more")
    assert lines[-1] == "all that recipes differ in: --print=csv or json"


def test_short_differences_stand_beside_each_row_of_a_group():
    results = {
        f"runs/{lr}-{seed}": result("mlm", {"held_out/loss": float(seed)}, optim__lr=lr, seed=seed)
        for lr in (0.1, 0.2)
        for seed in (1, 3)
    }
    rows = [line.split() for line in result_table.format_table(results, 80).splitlines()]
    assert rows[0][-3:] == ["held_out/loss", "differs", "in"]
    assert [row[-1] for row in rows[1:]] == ["lr=0.1"] * 3 + ["lr=0.2"] * 3
    assert rows[3][:7] == ["mean", "of", "2", "2.0000", "+-", "1.4142", "lr=0.1"]
    assert len(rows) == 7  # nothing is left out, so no line says where it is


def test_keys_that_end_alike_keep_their_sections():
    groups = [{"model.D": "1", "head.D": "2", "optim.lr": "3", "task.name": ""}, {"model.D": "4"}]
    assert result_table.shorten_keys(groups) == [["lr=3", "model.D=1", "head.D=2"], ["model.D=4"]]


def test_words_that_do_not_fit_are_counted():
    words = ["a=1", "b=2", "c=3"]
    assert result_table.join_words(words, 11) == "a=1 b=2 c=3"
    assert result_table.join_words(["a=1", "b=2", "c=333333333333"], 20) == "a=1 b=2 and 1 more"
    assert result_table.join_words(["a" * 30, "b=2"], 20) == "aaaaaa... and 1 more"
    assert result_table.join_words([], 20) == ""


def test_json_and_csv_have_every_number_and_every_difference():
    results = {"runs/a": wide(), "runs/b": wide(objective="clm"), "runs/c": None}
    records = json.loads(result_table.format_json(results))
    assert [x["run"] for x in records] == [*results]
    assert records[0]["metrics"] == wide().values
    assert records[0]["differs_in"] == {
        key: value for key, value in wide().config.items() if key != "seed"
    }
    assert records[2]["metrics"] == {}
    rows = list(csv.DictReader(result_table.format_csv(results).splitlines()))
    assert [row["run"] for row in rows] == [*results]
    assert float(rows[1]["held_out/perplexity"]) == 1e8
    assert rows[1]["model.size_3"] == "clm-3"
    assert rows[2]["step"] == ""


def test_a_number_that_was_not_finite_is_nan_and_a_large_one_short():
    cells = [format_score(x) for x in (None, 0.5, 191602300.0)]
    assert cells == ["nan", "0.5000", "1.916e+08"]
