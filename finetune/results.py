"""Compares the results of fine-tuned runs:  python -m finetune.results runs/a runs/b"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pretrain import cli
from pretrain.runtime import run_config
from pretrain.runtime.errors import UsageError, UserError
from pretrain.training.metrics import split_direction
from pretrain.training.reports import metrics_file


class Result(NamedTuple):
    """The evaluation that counts: the best by train.best, where a run has that, or the last.

    Attributes:
        init: the run whose weights training began with, or that they were random.
        step: of the evaluation.
        values: its numbers by name, as "dev/accuracy"; None: not finite.
        since: how many evaluations came after it.
    """

    init: str
    step: int
    values: dict[str, float | None]
    since: int


def read_result(workdir: Path) -> Result | None:
    """Reads the result of a fine-tuned run; None: nothing has been evaluated.

    Raises:
        UserError: the folder holds no fine-tuned run.
    """
    if not (workdir / "config.json").exists():
        raise UserError(f"{workdir} holds no run: it has no config.json")
    config = run_config.read_config(workdir)
    if "init" not in config:
        raise UserError(f"{workdir} holds a run that was not fine-tuned")
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
    scratch = "random weights" if config.get("random_init") or not config["init"] else ""
    init = ", ".join(filter(None, [scratch, config["init"]]))
    values = {k: v for k, v in line.items() if "/" in k}
    return Result(init, line["step"], values, len(lines) - 1 - lines.index(line))


def format_table(workdirs: Sequence[Path]) -> str:
    """Formats a row for each run and a column for each metric that any has, losses apart.

    Raises:
        UserError: see `read_result`.
    """
    results = {str(workdir): read_result(workdir) for workdir in workdirs}
    names = dict.fromkeys(k for x in results.values() if x for k in x.values if "loss" not in k)
    rows = [["run", "begun with", "step", *names]]
    for workdir, x in results.items():
        if x is None:
            rows.append([workdir, "not evaluated yet", *["-"] * (1 + len(names))])
        else:
            cells = [format_score(x.values[k]) if k in x.values else "-" for k in names]
            rows.append([workdir, x.init, str(x.step), *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


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
