"""Compares the results of runs:  python -m finetune.results runs/a runs/b runs/bert-*

A run's line is of the evaluation that counts; a folder with a run for each seed or fold has a line
for each.  Runs whose recipes differ in nothing but the seed or the fold have a line of their
means and deviations, too, and what tells the others apart stands beside each.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pretrain import cli
from pretrain.runtime.errors import UsageError
from pretrain.training.reports.results import (
    Result,
    compute_stats,
    format_score,
    group_results,
    list_jobs,
    read_result,
)


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


def _format_means(group: Mapping[str, Result], names: Sequence[str]) -> list[str]:
    values = [{name: x.values.get(name) for name in names} for x in group.values()]
    stats = compute_stats(values)
    return [
        f"{format_score(stats['mean'][name])} +- {format_score(stats['deviation'][name])}"
        for name in names
    ]


def main(words: list[str]) -> None:
    if not words:
        raise UsageError("name the runs: python -m finetune.results runs/a runs/b")
    print(format_table([Path(name) for name in words]))


if __name__ == "__main__":
    cli.run(main, has_words=True)
