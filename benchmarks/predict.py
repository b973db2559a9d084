"""Measures how fast runs predict, and how well:  python -m benchmarks.predict --workdir=runs/a in

`in` is read as by `finetune.predict`, with its flags.  Each run, that of --workdir and those
of --against=runs/b,runs/c, has a line: its scores, if the labels are there; the time of a query
alone, the median of all and the time that 1% exceed; and examples a second, --rows together.  A
query is an example with all its candidates.  Runs take turns; what compiles is not timed.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from absl import flags

from finetune import datasets, job
from finetune.prediction import input_formats
from finetune.prediction.predictor import Predictor
from finetune.several import parts
from pretrain import cli
from pretrain.cli import arguments
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime.errors import UsageError
from pretrain.runtime.sections import call_section

for name in ("workdir", "against", *arguments.EXAMPLES):
    flags.declare_key_flag(name)
QUERIES = flags.DEFINE_integer("queries", 200, "Examples to predict one by one.", 2)
ROUNDS = flags.DEFINE_integer("repeats", 5, "How often each run predicts all examples.", 1)


class Contender(NamedTuple):
    """A run that predicts one example at a time, and many together."""

    folder: str
    alone: Predictor
    together: Predictor


class Report(NamedTuple):
    """Holds the measurements of a run.

    Attributes:
        scores: by metric; {}: no labels are known.
        seconds: of each query alone.
        rates: examples a second, of each round.
    """

    scores: dict[str, float]
    seconds: list[float]
    rates: list[float]


def main(words: list[str]) -> None:
    if len(words) != 1:
        raise UsageError("name the file to read")
    if (load := os.getloadavg()[0]) > 1:
        print(f"warning: a load of {load:.1f} before the start", file=sys.stderr)
    contenders = [open_contender(str(x)) for x in (cli.WORKDIR.value, *arguments.AGAINST.value)]
    tuned = contenders[0].alone
    section = parts.list_sections(tuned.run.config)[tuned.name].data
    format, fields = input_formats.resolve_format(section, *arguments.read_format())
    examples = call_section("fields", datasets.read, fields, format=format, path=words[0]).examples
    reports = measure(contenders, examples, QUERIES.value, ROUNDS.value)
    for line in format_reports([x.folder for x in contenders], reports):
        print(line)


def open_contender(folder: str) -> Contender:
    tuned = job.load_job(Path(folder).expanduser().absolute(), arguments.TASK.value)
    layout = Layout(make_mesh())
    together = Predictor(tuned, layout, arguments.ROWS.value)
    return Contender(folder, Predictor(tuned, layout, 1), together)


def measure(
    contenders: Sequence[Contender], examples: Sequence[dict], queries: int, rounds: int
) -> list[Report]:
    """Predicts all examples together, and the first `queries` of them one by one, in turns."""
    reports = []
    for contender in contenders:
        contender.alone.predict_lines(examples[:1])  # compiles
        _, labelled, outputs = contender.together.predict_lines(examples)
        scores = contender.together.data.scores(labelled, outputs) if labelled else {}
        reports.append(Report(scores, [], []))
    for example in examples[:queries]:
        for contender, report in zip(contenders, reports, strict=True):
            report.seconds.append(time_call(contender.alone, [example]))
    for _ in range(rounds):
        for contender, report in zip(contenders, reports, strict=True):
            seconds = time_call(contender.together, examples)
            report.rates.append(len(examples) / seconds)
    return reports


def time_call(predictor: Predictor, examples: Sequence[dict]) -> float:
    start = time.perf_counter()
    predictor.predict_lines(examples)
    return time.perf_counter() - start


def format_reports(folders: Sequence[str], reports: Sequence[Report]) -> list[str]:
    """Formats a line for each run, beside the ratio of its speed to the first one's."""
    width = max(map(len, folders))
    lines = [f"{'':<{width}}  ms a query: p50     p99     ex/s        x  scores"]
    first = np.median(reports[0].rates)
    for folder, report in zip(folders, reports, strict=True):
        half, most = 1000 * np.percentile(report.seconds, [50, 99])
        rate = np.median(report.rates)
        scores = "  ".join(f"{name} {x:.4f}" for name, x in report.scores.items())
        lines.append(
            f"{folder:<{width}}{half:>17.2f}{most:>8.2f}{rate:>9,.0f}{rate / first:>9.2f}  {scores}"
        )
    return lines


if __name__ == "__main__":
    cli.run(main, required=["workdir"], has_words=True)
