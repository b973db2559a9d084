"""Compares the results of runs:  python -m finetune.results runs/a runs/b runs/bert-*

A run's line is of the evaluation that counts; a folder with a run for each seed or fold has a line
for each.  Runs whose recipes differ in nothing but the seed or the fold have a line of their
means and deviations, too, and what tells the others apart stands beside each.  The table is as wide
as the terminal; --print=csv and --print=json have all numbers, and all that recipes differ in.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from pretrain import cli
from pretrain.runtime.errors import UsageError
from pretrain.training.reports import result_table
from pretrain.training.reports.results import Result, list_jobs, read_result

PRINT = flags.DEFINE_enum("print", "table", ["table", "csv", "json"], "What is printed.")
NARROWEST = 80  # characters of a terminal


def read_results(workdirs: Sequence[Path]) -> dict[str, Result | None]:
    """Reads the results of the runs in folders, by the runs' names.

    Raises:
        UserError: see `read_result`.
    """
    return {str(job): read_result(job) for folder in workdirs for job in list_jobs(folder)}


def main(words: list[str]) -> None:
    if not words:
        raise UsageError("name the runs: python -m finetune.results runs/a runs/b")
    results = read_results([Path(name) for name in words])
    if PRINT.value == "csv":
        print(result_table.format_csv(results))
    elif PRINT.value == "json":
        print(result_table.format_json(results))
    else:
        columns = shutil.get_terminal_size((result_table.WIDTH, 0)).columns
        print(result_table.format_table(results, max(columns, NARROWEST)))


if __name__ == "__main__":
    cli.run(main, has_words=True)
