"""Formats the results of runs as a table for a terminal, or with all numbers as CSV or JSON."""

import csv
import io
import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from pretrain.training.metrics import split_direction
from pretrain.training.reports.results import (
    Group,
    Result,
    compute_stats,
    format_score,
    group_results,
)

WIDTH = 110  # characters of a line, where there is no terminal
LONGEST = 40  # characters of a cell that names something
BESIDE = 40  # characters of what recipes differ in, beside a row
DIFFERS = "differs in"
MORE = re.compile(r" and \d+ more$")  # ends what `join_words` cut
# Metrics of pretraining by how much they say; a fine-tuned run's are all of equal worth.
OF_PRETRAINING = ("loss", "unigram", "accuracy", "perplexity", "byte_perplexity")
# Keys of recipes by how much they say: what these name decides many others.
PARTS = ("objective.name", "model.name", "task.name", "task.encoder.name", "corpus.source")
SECTIONS = ("optim", "model", "batches", "objective", "corpus", "data", "task", "head")

Cells = list[str]


def format_table(results: Mapping[str, Result | None], width: int = WIDTH) -> str:
    """Formats a row for each run and for the mean of each group, no wider than a terminal.

    What recipes differ in stands at the end of a row if all of it is short, else below a group's
    rows.  Metrics that find no room are named below.

    Args:
        results: by the runs' names; None: not evaluated yet.
        width: characters of a line.
    """
    groups = group_results(results)
    words = shorten_keys([group.words for group in groups])
    longest = max([len(" ".join(x)) for x in words], default=0)
    is_beside = 0 < longest <= BESIDE
    room = width - (max(longest, len(DIFFERS)) + 2) * is_beside
    metrics = rank_metrics([x for x in results.values() if x])
    count = len(metrics)
    while count > 1 and _measure(_build_rows(groups, results, metrics[:count])) > room:
        count -= 1
    shown = [name for name in list_metrics(results) if name in metrics[:count]]
    rows = _build_rows(groups, results, shown)
    ends = [DIFFERS] if is_beside else [""]  # of rows
    below: dict[int, str] = {}  # by the number of the row before
    for group, of_group in zip(groups, words, strict=True):
        ends += [" ".join(of_group) * is_beside] * count_rows(group)
        if of_group and not is_beside:
            below[len(ends) - 1] = f"  {join_words(of_group, width - 2)}"
    ends += [""] * (len(rows) - len(ends))
    lines = []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, (row, end) in enumerate(zip(rows, ends, strict=True)):
        lines.append("  ".join([*map(str.ljust, row, widths), end]).rstrip())
        lines += [below[number]] if number in below else []
    if hidden := [name for name in list_metrics(results) if name not in shown]:
        more = f"not shown, in --print=csv or json: {', '.join(hidden)}"
        lines += ["", *textwrap.wrap(more, width, break_on_hyphens=False)]
    if any(MORE.search(line) for line in below.values()):
        lines += ["", "all that recipes differ in: --print=csv or json"]
    return "\n".join(lines)


def count_rows(group: Group) -> int:
    """Counts a group's rows: one of each run, and of several one of their mean."""
    return len(group.results) + (len(group.results) > 1)


def list_metrics(results: Mapping[str, Result | None]) -> list[str]:
    """Lists the names of all runs' numbers, in the order in which they come."""
    return list(dict.fromkeys(name for x in results.values() if x for name in x.metrics))


def rank_metrics(results: Sequence[Result]) -> list[str]:
    """Lists the names of numbers, those first that say most of the most runs."""

    def rank(name: str) -> tuple[bool, int, int]:
        having = [x for x in results if name in x.metrics]
        is_best = any(split_direction(x.config.get("train.best", ""))[0] == name for x in having)
        kind = name.rpartition("/")[2]
        is_tuned = any("objective.name" not in x.config for x in having)
        known = OF_PRETRAINING.index(kind) if kind in OF_PRETRAINING else len(OF_PRETRAINING)
        return not is_best, 0 if is_tuned else known, -len(having)

    return sorted(list_metrics({str(i): x for i, x in enumerate(results)}), key=rank)


def _build_rows(
    groups: Sequence[Group], results: Mapping[str, Result | None], metrics: Sequence[str]
) -> list[Cells]:
    """Builds the rows of a table without what recipes differ in, the header first."""
    rows = [["run", "begun with", "step", *metrics]]
    for group in groups:
        for name, x in group.results.items():
            cells = [format_score(x.values[k]) if k in x.values else "-" for k in metrics]
            rows.append([cut_front(name), cut_front(x.init), str(x.step), *cells])
        if count_rows(group) > len(group.results):
            means = _format_means(list(group.results.values()), metrics)
            rows.append([f"  mean of {len(group.results)}", "", "", *means])
    missing = [cut_front(name) for name, x in results.items() if x is None]
    return rows + [[name, "not evaluated yet", *["-"] * (1 + len(metrics))] for name in missing]


def _measure(rows: Sequence[Cells]) -> int:
    return sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) - 2


def _format_means(results: Sequence[Result], metrics: Sequence[str]) -> Cells:
    stats = compute_stats([{name: x.values.get(name) for name in metrics} for x in results])
    return [
        f"{format_score(stats['mean'][name])} +- {format_score(stats['deviation'][name])}"
        for name in metrics
    ]


def cut_front(text: str) -> str:
    """Cuts a name at its beginning, as the ends of paths tell them apart."""
    return text if len(text) <= LONGEST else f"...{text[3 - LONGEST :]}"


def shorten_keys(groups: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Lists what tells groups of recipes apart as "lr=0.1", what says most first.

    Args:
        groups: of each the values by dotted key.
    """
    keys = list(dict.fromkeys(key for group in groups for key in group))
    names = {key: key.removesuffix(".name") for key in keys}
    ends = [name.rpartition(".")[2] for name in names.values()]
    # The last part, where no other key ends so.
    short = {
        key: end if ends.count(end) == 1 else names[key]
        for key, end in zip(keys, ends, strict=True)
    }

    def rank(key: str) -> tuple[int, int]:
        section = key.partition(".")[0]
        part = PARTS.index(key) if key in PARTS else len(PARTS)
        return part, SECTIONS.index(section) if section in SECTIONS else len(SECTIONS)

    ordered = sorted(keys, key=rank)
    return [[f"{short[k]}={group[k]}" for k in ordered if group.get(k)] for group in groups]


def join_words(words: Sequence[str], width: int) -> str:
    """Joins as many words as fit, and says how many others there are."""
    for count in range(len(words), 0, -1):
        rest = [f"and {len(words) - count} more"] * (count < len(words))
        if len(text := " ".join([*words[:count], *rest])) <= width:
            return text
    rest_of_one = f" and {len(words) - 1} more" if len(words) > 1 else ""
    return f"{words[0][: width - len(rest_of_one) - 3]}...{rest_of_one}" if words else ""


def list_records(results: Mapping[str, Result | None]) -> list[dict[str, Any]]:
    """Lists all that is known of each run, and by which keys its recipe differs from others."""
    records: list[dict[str, Any]] = []
    for number, group in enumerate(group_results(results)):
        for name, x in group.results.items():
            records.append(
                dict(run=name, begun_with=x.init, step=x.step, group=number)
                | dict(metrics=x.values, differs_in=group.words)
            )
    empty: dict[str, Any] = dict(begun_with="", step=None, group=None, metrics={}, differs_in={})
    return records + [{"run": name, **empty} for name, x in results.items() if x is None]


def format_json(results: Mapping[str, Result | None]) -> str:
    """Formats all numbers of runs as JSON, an object for each."""
    return json.dumps(list_records(results), indent=1)


def format_csv(results: Mapping[str, Result | None]) -> str:
    """Formats all numbers of runs as CSV, a row for each; what differs has its dotted name."""
    rows = [
        {k: x for k, x in record.items() if not isinstance(x, Mapping)}
        | record["metrics"]
        | record["differs_in"]
        for record in list_records(results)
    ]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")
