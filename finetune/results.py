"""Compares the results of runs:  python -m finetune.results runs/a runs/b runs/bert-*

A run's line is of the evaluation that counts; a folder with a run for each seed or fold has a line
for each.  Runs whose recipes differ in nothing but the seed or the fold have a line of their
means and deviations, too, and what tells the others apart stands beside each.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pretrain import cli
from pretrain.runtime import run_config
from pretrain.runtime.errors import UsageError, UserError
from pretrain.training.metrics import split_direction
from pretrain.training.reports import metrics_file

JOBS = ("seed-*", "fold-*", "seed-*/fold-*")  # folders within a workdir
REPEATED = ("seed", "data.fold")  # what differs between repetitions
MOST_WORDS = 4
SHOWN = ("init", "random_init")  # in a column of their own


class Result(NamedTuple):
    """The evaluation that counts: the best by train.best, where a run has that, or the last.

    Attributes:
        config: the recipe, by dotted names.
        init: the run whose weights training began with, or that they were random.
        step: of the evaluation.
        values: its numbers by name, as "dev/accuracy"; None: not finite.
        since: how many evaluations came after it.
    """

    config: dict[str, Any]
    init: str
    step: int
    values: dict[str, float | None]
    since: int

    @property
    def metrics(self) -> list[str]:
        """The names of the numbers, of a fine-tuned run without losses."""
        is_pretrained = "objective.name" in self.config
        return [name for name in self.values if is_pretrained or "loss" not in name]


class Group(NamedTuple):
    """Results of runs that are repetitions, by the runs' names, and what tells them from others."""

    difference: str
    results: dict[str, Result]


def list_jobs(workdir: Path) -> list[Path]:
    """Lists the runs in a folder: itself, or one for each seed and fold."""
    jobs = {file.parent for pattern in JOBS for file in workdir.glob(f"{pattern}/config.json")}
    return [workdir] if (workdir / "config.json").exists() or not jobs else sorted(jobs)


def read_result(workdir: Path) -> Result | None:
    """Reads the result of a run; None: nothing has been evaluated.

    Raises:
        UserError: the folder holds no run.
    """
    if not (workdir / "config.json").exists():
        raise UserError(f"{workdir} holds no run: it has no config.json")
    config = run_config.read_config(workdir)
    lines = [
        x
        for x in metrics_file.read_lines(workdir / "metrics.jsonl")
        if metrics_file.is_evaluation(x)
    ]
    if not lines:
        return None
    name, sign = split_direction(config["train"]["best"])
    finite = [x for x in lines if metrics_file.is_number(x.get(name))]
    # Of equal ones the first, as training keeps it: only a better one replaces the best.
    line = max(finite, key=lambda x: sign * x[name]) if finite else lines[-1]
    init = config.get("init", "")
    scratch = "random weights" if config.get("random_init") or not init else ""
    init = ", ".join(filter(None, [scratch, init]))
    values = {k: v for k, v in line.items() if "/" in k}
    since = len(lines) - 1 - lines.index(line)
    return Result(run_config.flatten(config), init, line["step"], values, since)


def format_table(workdirs: Sequence[Path]) -> str:
    """Formats a row for each run and for each group of runs, and a column for each metric.

    Raises:
        UserError: see `read_result`.
    """
    results = {str(job): read_result(job) for folder in workdirs for job in list_jobs(folder)}
    groups = group_results(results)
    names = list(dict.fromkeys(name for x in results.values() if x for name in x.metrics))
    rows = [["run", "begun with", "step", *names, "differs in" * any(x.difference for x in groups)]]
    for difference, group in groups:
        for workdir, x in group.items():
            cells = [format_score(x.values[k]) if k in x.values else "-" for k in names]
            rows.append([workdir, x.init, str(x.step), *cells, difference])
        if len(group) > 1:
            rows.append(
                [f"  mean of {len(group)}", "", "", *_format_means(group, names), difference]
            )
    missing = [workdir for workdir, x in results.items() if x is None]
    rows += [[workdir, "not evaluated yet", *["-"] * (1 + len(names)), ""] for workdir in missing]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def group_results(results: Mapping[str, Result | None]) -> list[Group]:
    """Groups the results of runs whose recipes differ in nothing but seed and fold."""
    recipes = {
        name: {key: str(value) for key, value in x.config.items() if key not in REPEATED}
        for name, x in results.items()
        if x
    }
    keys = dict.fromkeys(key for recipe in recipes.values() for key in recipe)
    # A key that one lacks counts as one with another value.
    differing = [key for key in keys if len({x.get(key, "") for x in recipes.values()}) > 1]
    groups: dict[tuple[str, ...], Group] = {}
    for name, recipe in recipes.items():
        words = {key: f"{key}={recipe[key]}" for key in differing if key in recipe}
        difference = _shorten([word for key, word in words.items() if key not in SHOWN])
        group = groups.setdefault(tuple(words.values()), Group(difference, {}))
        group.results[name] = results[name]  # type: ignore[assignment]
    return list(groups.values())


def _shorten(words: list[str]) -> str:
    """Joins the first few of some words: runs of different recipes differ in dozens of values."""
    more = len(words) - MOST_WORDS
    return " ".join([*words[:MOST_WORDS], *[f"and {more} more"] * (more > 0)])


def _format_means(group: Mapping[str, Result], names: Sequence[str]) -> list[str]:
    values = [{name: x.values.get(name) for name in names} for x in group.values()]
    stats = compute_stats(values)
    return [
        f"{format_score(stats['mean'][name])} +- {format_score(stats['deviation'][name])}"
        for name in names
    ]


def format_score(value: float | None) -> str:
    """Formats a metric to four decimals; "nan" where it was not finite."""
    return f"{value:.4f}" if metrics_file.is_number(value) else "nan"


def compute_stats(scores: list[dict[str, float | None]]) -> dict[str, dict[str, float]]:
    """Computes the mean and the standard deviation of each metric over several jobs."""
    stats: dict[str, dict[str, float]] = {"mean": {}, "deviation": {}}
    for name in scores[0]:
        # One that was not finite makes the mean so: left out, it would flatter it.
        values = [math.nan if (x := job[name]) is None else x for job in scores]
        stats["mean"][name] = statistics.mean(values)
        # Of a sample, over n - 1: the jobs stand for all other seeds.
        stats["deviation"][name] = statistics.stdev(values)
    return stats


def print_stats(stats: dict[str, dict[str, float]], jobs: str) -> None:
    """Prints what `compute_stats` returned of `jobs`, their number and kind: "5 folds"."""
    for name, mean in stats["mean"].items():
        print(f"{name}: {mean:.4f} +- {stats['deviation'][name]:.4f} of {jobs}")


def main(words: list[str]) -> None:
    if not words:
        raise UsageError("name the runs: python -m finetune.results runs/a runs/b")
    print(format_table([Path(name) for name in words]))


if __name__ == "__main__":
    cli.run(main, has_words=True)
