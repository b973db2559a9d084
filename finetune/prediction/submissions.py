"""Writes predictions as lines of JSON, or as the servers of GLUE and SQuAD take them."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

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
        place = {name: example[name] for name in ("id", "where") if name in example}
        file.write(json.dumps({**place, **line}, ensure_ascii=False) + "\n")

    yield write


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


WRITERS = {"": write_jsonl, "glue": write_glue, "squad": write_squad}
