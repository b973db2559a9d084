"""Reads what runs came to, and groups those that are repetitions of one another."""

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from pretrain.training.metrics import split_direction
from pretrain.training.reports import metrics_file

Scores = Sequence[Mapping[str, float | None]]  # of jobs, by metric
REPEATED = ("seed", "data.fold")  # what differs between repetitions
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
    """Results of runs that are repetitions.

    Attributes:
        words: the values that tell the recipes from others, by dotted name.
        results: by the runs' names.
    """

    words: dict[str, str]
    results: dict[str, Result]


def list_jobs(workdir: Path) -> list[Path]:
    """Lists the runs in a folder: itself, or one for each seed and fold."""
    is_run = (workdir / "config.json").exists()
    return [workdir] if is_run else run_config.find_jobs(workdir) or [workdir]


def read_result(workdir: Path) -> Result | None:
    """Reads the result of a run; None: nothing has been evaluated.

    Raises:
        UserError: the folder holds no run.
    """
    if not workdir.exists():
        raise UserError(f"there is no folder {workdir}")
    run_config.require_run(workdir)
    config = run_config.read_config(workdir)
    lines = [
        x
        for x in metrics_file.read_lines(workdir / "metrics.jsonl")
        if metrics_file.is_evaluation(x)
    ]
    if not lines:
        return None
    # Recipes of pretraining had no such key once.
    name, sign = split_direction(config["train"].get("best", ""))
    finite = [x for x in lines if metrics_file.is_number(x.get(name))]
    # The first of equal ones wins, as in training: only a better one replaces the best.
    line = max(finite, key=lambda x: sign * x[name]) if finite else lines[-1]
    init = config.get("init", "")
    scratch = "random weights" if config.get("random_init") or not init else ""
    init = ", ".join(filter(None, [scratch, init]))
    values = {k: v for k, v in line.items() if "/" in k}
    since = len(lines) - 1 - lines.index(line)
    return Result(run_config.flatten(config), init, line["step"], values, since)


def group_results(results: Mapping[str, Result | None]) -> list[Group]:
    """Groups the results of runs whose recipes differ in nothing but seed and fold."""
    known = {name: x for name, x in results.items() if x}
    groups = []
    for words, names in group_recipes({name: x.config for name, x in known.items()}):
        others = {key: value for key, value in words.items() if key not in SHOWN}
        groups.append(Group(others, {name: known[name] for name in names}))
    return groups


def group_recipes(
    recipes: Mapping[str, Mapping[str, Any]],
) -> list[tuple[dict[str, str], list[str]]]:
    """Groups the names of recipes that differ in nothing but seed and fold.

    Args:
        recipes: by any name, each by dotted keys.

    Returns:
        (what tells a group from others, as {"optim.lr": "0.1"}; its names)
    """
    texts = {
        name: {key: str(value) for key, value in recipe.items() if key not in REPEATED}
        for name, recipe in recipes.items()
    }
    keys = dict.fromkeys(key for recipe in texts.values() for key in recipe)
    # A key that one lacks counts as one with another value.
    differing = [key for key in keys if len({x.get(key, "") for x in texts.values()}) > 1]
    groups: dict[tuple[tuple[str, str], ...], tuple[dict[str, str], list[str]]] = {}
    for name, recipe in texts.items():
        words = {key: recipe[key] for key in differing if key in recipe}
        groups.setdefault(tuple(words.items()), (words, []))[1].append(name)
    return list(groups.values())


def format_score(value: float | None) -> str:
    """Formats a metric to four decimals, a large one to four digits; "nan": it was not finite."""
    if value is None or not metrics_file.is_number(value):
        return "nan"
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.4g}"


def compute_stats(scores: Scores) -> dict[str, dict[str, float | None]]:
    """Computes the mean and the standard deviation of each metric over several jobs.

    Args:
        scores: of two jobs or more; None: it was not finite.

    Returns:
        "mean" and "deviation" by metric; None where a job has no finite number.
    """
    stats: dict[str, dict[str, float | None]] = {"mean": {}, "deviation": {}}
    for name in dict.fromkeys(name for job in scores for name in job):
        values = [x for job in scores if (x := job.get(name)) is not None and math.isfinite(x)]
        # One that was not finite makes the mean so: left out, it would flatter it.
        is_whole = len(values) == len(scores)
        stats["mean"][name] = statistics.mean(values) if is_whole else None
        # Divides by n - 1: the jobs are a sample of all seeds.
        stats["deviation"][name] = statistics.stdev(values) if is_whole else None
    return stats


def print_stats(stats: Mapping[str, Mapping[str, float | None]], jobs: str) -> None:
    """Prints what `compute_stats` returned of `jobs`, their number and kind: "5 folds"."""
    for name, mean in stats["mean"].items():
        deviation = stats["deviation"][name]
        print(f"{name}: {format_score(mean)} +- {format_score(deviation)} of {jobs}")
