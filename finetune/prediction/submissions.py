"""What is told of examples as files: lines of JSON, and what GLUE's and SQuAD's servers take."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from pretrain.runtime.errors import UserError
from pretrain.runtime.files import replace_file


@contextlib.contextmanager
def draft(out: Path) -> Iterator[IO[str]]:
    """A file that takes its name when all is in it.

    Raises:
        UserError: it cannot be written.
    """
    try:
        with replace_file(out) as path, path.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def jsonl(file: IO[str]) -> Iterator[Callable[[dict, dict], None]]:
    """A line of JSON for each example."""

    def write(example: dict, line: dict) -> None:
        place = {name: example[name] for name in ("id", "where") if name in example}
        file.write(json.dumps({**place, **line}, ensure_ascii=False) + "\n")

    yield write


@contextlib.contextmanager
def glue(file: IO[str]) -> Iterator[Callable[[dict, dict], None]]:
    """A table of the ids, or numbers from 0, and the labels or numbers told."""
    count = 0
    file.write("index\tprediction\n")

    def write(example: dict, line: dict) -> None:
        nonlocal count
        told = line.get("label", line.get("value"))
        if told is None:
            raise UserError("--submission=glue: GLUE's tasks are of classify and regress")
        told = f"{told:.6g}" if isinstance(told, float) else told
        file.write(f"{example.get('id', count)}\t{told}\n")
        count += 1

    yield write


@contextlib.contextmanager
def squad(file: IO[str]) -> Iterator[Callable[[dict, dict], None]]:
    """One object, id to answer; "" where there is none."""
    answers = {}

    def write(example: dict, line: dict) -> None:
        if "prediction_text" not in line or "id" not in example:
            raise UserError("--submission=squad: SQuAD's task is span, and its questions have ids")
        answers[example["id"]] = line["prediction_text"]

    yield write
    json.dump(answers, file, ensure_ascii=False)


WRITERS = {"": jsonl, "glue": glue, "squad": squad}
