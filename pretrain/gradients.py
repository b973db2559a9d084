"""Diagnose gradients:  python -m pretrain.gradients --config=configs/gradients.py

Each section of the recipe is a study: a table on stdout, lines in <out>/gradients.jsonl, a picture.
Folders of trained runs behind the flags are studied in the place of these.
"""

import itertools
import json
import pathlib
from collections.abc import Iterator, Sequence

from absl import flags

from pretrain import cli
from pretrain.diagnostics.measurements import Row, format_row, to_line
from pretrain.diagnostics.pictures import draw_study
from pretrain.diagnostics.run_gradients import study_run
from pretrain.diagnostics.studies import STUDIES
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.trained_run import load_backbone_params, load_run
from pretrain.runtime.errors import UserError

flags.declare_key_flag("config")
OUT = flags.DEFINE_string("out", "gradients", "The folder for gradients.jsonl and the pictures.")


def main(config, runs: Sequence[str] = ()) -> None:
    """Runs the studies, one after the other, and prints each row when it is measured."""
    out = pathlib.Path(OUT.value)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with (out / "gradients.jsonl").open("w") as file:
            for study, group in itertools.groupby(list_rows(config, runs), lambda row: row.study):
                rows: list[Row] = []
                for row in group:
                    print(format_row(row, is_first=not rows), flush=True)
                    file.write(json.dumps(to_line(row)) + "\n")
                    rows.append(row)
                draw_study(rows, out / f"{study}.png")
                print(f"{out / study}.png\n")
    except OSError as error:
        raise UserError(f"cannot write {error.filename}: {error.strerror}") from error


def list_rows(config, runs: Sequence[str]) -> Iterator[Row]:
    """Yields the rows of all studies asked for, or those of trained runs.

    Raises:
        UserError: no study is asked for, or there is no text for the runs.
    """
    if runs:
        for run in [load_run(folder) for folder in runs]:
            params, _ = load_backbone_params(run, Layout(make_mesh()))
            yield from study_run(config, run, params)
        return
    if not any(config.get(name) for name in STUDIES):
        raise UserError(f"the recipe asks for no study: it has none of {', '.join(STUDIES)}")
    for name, study in STUDIES.items():
        if config.get(name):
            yield from study(config)


if __name__ == "__main__":
    cli.run(
        main, recipe=["seed", "cells"], has_words=True, interrupted="what was measured is in --out"
    )
