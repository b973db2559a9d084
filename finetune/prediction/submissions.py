"""Writes predictions as lines of JSON, tables, or as the servers of GLUE and SQuAD take them."""

import contextlib
import csv
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from pretrain.runtime.errors import UserError
from pretrain.runtime.files import replace_file


@contextlib.contextmanager
def open_draft(out: Path) -> Iterator[IO[str]]:
    """Opens a file that takes its name when all is in it.

    Raises:
        UserError: it cannot be written.
    """
    try:
        with replace_file(out) as path, path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def write_jsonl(file: IO[str]) -> Iterator[Callable[[dict, dict], None]]:
    """Gives a function that writes a line of JSON for each example."""

    def write(example: dict, line: dict) -> None:
        file.write(json.dumps(place_line(example, line), ensure_ascii=False) + "\n")

    yield write


@contextlib.contextmanager
def write_table(file: IO[str], delimiter: str) -> Iterator[Callable[[dict, dict], None]]:
    """Gives a function that writes a row for each example, below the names of the columns.

    An object has a column for each of its entries, "probabilities.spam"; a list is JSON.  The last
    column is the reason why a row has no prediction.
    """
    columns: list[str] = []
    waiting: list[dict[str, Any]] = []  # rows before the first that shows the columns
    write_row = csv.writer(file, delimiter=delimiter, lineterminator="\n").writerow

    def flush() -> None:
        for row in waiting:
            if lost := [x for x, value in row.items() if value is not None and x not in columns]:
                raise UserError(
                    f"a prediction has {lost[0]!r}, which the first has not: this task's are no "
                    "table, name an out.jsonl"
                )
            write_row([row.get(name, "") for name in columns])
        waiting.clear()

    def write(example: dict, line: dict) -> None:
        row = dict(flatten(place_line(example, line)))
        waiting.append(row)
        if not columns and "reason" not in line:
            columns.extend([*row, "reason"])
            write_row(columns)
        if columns:
            flush()

    yield write
    if waiting:  # none has a prediction
        columns.extend(waiting[0])
        write_row(columns)
        flush()


def place_line(example: dict, line: dict) -> dict[str, Any]:
    """Puts the place of an example, and its id if it has one, before its prediction."""
    return {**{name: example[name] for name in ("id", "where") if name in example}, **line}


def flatten(line: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the cells of a prediction by the names of their columns."""
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{before}{name}.")
        else:
            is_plain = not isinstance(value, list | tuple)
            yield before + name, value if is_plain else json.dumps(value, ensure_ascii=False)


@contextlib.contextmanager
def write_glue(file: IO[str]) -> Iterator[Callable[[dict, dict], None]]:
    # A row has the id, or a number from 0, and the prediction.
    count = 0
    file.write("index\tprediction\n")

    def write(example: dict, line: dict) -> None:
        nonlocal count
        value = line.get("label", line.get("value"))
        if "reason" in line:
            raise UserError(
                f"{example['where']}: {line['reason']}: GLUE wants a prediction of each"
            )
        if value is None:
            raise UserError("--submission=glue: GLUE's tasks are of classify and regress")
        value = f"{value:.6g}" if isinstance(value, float) else value
        file.write(f"{example.get('id', count)}\t{value}\n")
        count += 1

    yield write


@contextlib.contextmanager
def write_squad(file: IO[str]) -> Iterator[Callable[[dict, dict], None]]:
    """Gives a function that collects answers, written at the end as one object by id."""
    answers = {}

    def write(example: dict, line: dict) -> None:
        if "prediction_text" not in line or "id" not in example:
            raise UserError("--submission=squad: SQuAD's task is span, and its questions have ids")
        answers[example["id"]] = line["prediction_text"]

    yield write
    json.dump(answers, file, ensure_ascii=False)


# Of files that others read as something else than lines of JSON.
FOREIGN = (".parquet", ".feather", ".arrow", ".xlsx", ".xls", ".npy", ".npz", ".h5", ".gz", ".zst")
WRITERS: dict[str, Callable[[IO[str]], Any]] = {
    "": write_jsonl,
    ".csv": functools.partial(write_table, delimiter=","),
    ".tsv": functools.partial(write_table, delimiter="\t"),
    "glue": write_glue,
    "squad": write_squad,
}


def choose_writer(submission: str, out: str) -> Callable[[IO[str]], Any]:
    """Chooses the writer of a benchmark, or by the ending of the file: lines of JSON by default.

    Raises:
        UserError: the ending is that of a file which predictions are not written to.
    """
    suffix = Path(out).suffix.lower()
    if suffix in FOREIGN and not submission:
        raise UserError(f"{out}: predictions are written to an out.jsonl, out.csv or out.tsv")
    return WRITERS[submission or (suffix if suffix in WRITERS else "")]
