"""What a fine-tuned run tells of a file:  python -m finetune.predict --workdir=runs/sst2 in out

`in` is read as the run's recipe has it, a block at a time, and `out` has a line of JSON for each
example, in the order of `in`: its place, its "id" if it has one, and what is told.  With
--submission=glue it is "index<TAB>prediction", as that benchmark's server takes it, with
--submission=squad an object from ids to answers.  Where `in` has the labels, too, the task's
metrics are printed.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np
import optax
from absl import app, flags, logging

from finetune import blocks, job
from finetune.examples import Examples
from pretrain import machine
from pretrain.data.progress import say
from pretrain.errors import UserError
from pretrain.sharding import Layout, make_mesh
from pretrain.steps import Steps

FORMAT = flags.DEFINE_string("format", "", "Of the input; default: the recipe's, with its fields.")
FIELDS = flags.DEFINE_string(
    "fields", "{}", 'Of the format, as JSON, beside the recipe\'s: \'{"label": ""}\' for none.'
)
SPLIT = flags.DEFINE_string("split", "", "Take the fields that the recipe has for this: test.")
ROWS = flags.DEFINE_integer("rows", 0, "That are read at once; default: the recipe's eval_B.", 0)
SUBMISSION = flags.DEFINE_enum("submission", "", ["", "glue", "squad"], "As a benchmark wants it.")
SCORE = flags.DEFINE_bool("score", True, "Print metrics where labels are there; holds those rows.")

Outputs = dict[str, np.ndarray]
EVERY = 5.0  # seconds


class Predictor:
    """A fine-tuned run that tells of examples, on all devices of a machine.

    Attributes:
        form, task: of `finetune.tasks`.
        step: that the weights are of: those that did best, where the run kept them.
    """

    def __init__(self, tuned: job.Tuned, layout: Layout, rows: int = 0):
        """`rows`: of a batch, rounded up to what the devices divide; 0: the recipe's eval_B."""
        self.run, self.form, self.task = tuned
        self.layout, self.L = layout, self.run.config.batches.L
        rows = rows or self.run.config.batches.get("eval_B", 32)
        self.B = -(-rows // layout.shards("B")) * layout.shards("B")
        self.step, self._stop = -1, machine.Stop()
        self._steps: Steps | None = None
        self._params: Any = None

    def __call__(self, examples: Sequence[dict]) -> Outputs:
        """What the task's `predict` gives of all rows of these examples.

        Raises:
            UserError: the run has no weights, or the process was told to terminate.
        """
        data = Examples(self.form.arrays(examples), B=self.B, L=self.L)
        if self._steps is None:
            self._steps = Steps(self.task, optax.identity(), self.layout, [data], seed=0)
            self._params, self.step = self.run.weights(self._steps.like.params)
        outputs = self._steps.predict(self._params, data, self._stop)
        if outputs is None:
            raise UserError("told to terminate before the end: there is no result")
        return outputs

    def lines(self, examples: Sequence[dict]) -> tuple[list[dict], list[dict], Outputs]:
        """What is told of each example, and those whose labels are known with their outputs."""
        known = [job.known([example]) for example in examples]
        lines: list[dict] = [{}] * len(examples)
        labelled: list[dict] = []
        outputs: Outputs = {}
        for kind in set(known):
            numbers = [i for i, own in enumerate(known) if own == kind]
            chosen = [examples[i] for i in numbers]
            found = self(chosen)
            for i, line in zip(numbers, self.form.lines(chosen, found), strict=True):
                lines[i] = line
            if kind:
                labelled, outputs = chosen, found
        return lines, labelled, outputs


def predict(
    predictor: Predictor, found: Iterable[blocks.Read], write: Callable[[dict, dict], None],
    say: Callable[[str], None] = say, score: bool = True,
) -> dict[str, float]:  # fmt: skip
    """Tells of all examples, a block at a time.

    Args:
        write: is called with each example and what is told of it.
        say: is told how far it is, and what the user should know.
        score: labelled examples are kept, all of them, and scored.

    Returns:
        The task's metrics on the examples whose labels are known; {}: there are none.
    """
    kept: list[dict] = []
    held: list[Outputs] = []
    done, said, notes = 0, time.monotonic(), predictor.form.notes
    for block in found:
        lines, labelled, outputs = predictor.lines(block.examples)
        for example, line in zip(block.examples, lines, strict=True):
            write(example, line)
        if labelled and score:
            kept += labelled
            held.append(outputs)
        done += len(lines)
        for note in dict.fromkeys([*block.notes, *notes]):
            say(note)
        notes.clear()
        if time.monotonic() - said > EVERY:
            said = time.monotonic()
            say(f"{done:,} examples")
    say(f"{done:,} examples, by the weights of step {predictor.step}")
    return predictor.form.scores(kept, joined(held)) if kept else {}


def joined(outputs: Sequence[Outputs]) -> Outputs:
    """One after the other; where one has more options than another, zeros take their place."""
    found = {}
    for name in outputs[0]:
        parts = [each[name] for each in outputs]
        shape = np.max([x.shape[1:] for x in parts], axis=0).astype(int)
        found[name] = np.concatenate(
            [
                np.pad(x, [(0, 0), *((0, n - m) for n, m in zip(shape, x.shape[1:], strict=True))])
                for x in parts
            ]
        )
    return found


# --- what is written -----------------------------------------------------------------------------


@contextlib.contextmanager
def draft(out: Path) -> Iterator[IO[str]]:
    """A file that takes its name when all is in it.

    Raises:
        UserError: it cannot be written.
    """
    path = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    try:
        with path.open("w", encoding="utf-8") as file:
            yield file
        path.replace(out)
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}") from error
    finally:
        path.unlink(missing_ok=True)


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


# --- the command ---------------------------------------------------------------------------------


def fields(config: Any, format: str, split: str, more: str) -> tuple[str, dict[str, Any]]:
    """The format of the input and its fields: the recipe's where it is the recipe's format.

    Raises:
        UserError: the recipe has no such split, or `more` is no JSON object.
    """
    own = config.data.to_dict()
    named = {name: own.pop(name, None) for name in job.SPLITS}
    of_split: dict[str, Any] = {}
    if split:
        if not named.get(split):
            there = ", ".join(name for name, value in named.items() if value)
            raise UserError(f"--split={split}: the recipe has {there}")
        of_split = named[split] if isinstance(named[split], dict) else {}
    try:
        changes = json.loads(more)
    except ValueError as error:
        raise UserError(f"--fields={more!r} is not JSON: {error}") from error
    if not isinstance(changes, dict):
        raise UserError(f'--fields={more!r} should be an object, as \'{{"label": ""}}\'')
    own = own | of_split
    usual = own.pop("format", "")
    own.pop("path", None)
    return (format, changes) if format not in ("", usual) else (usual, own | changes)


def files(argv: list[str], overwrite: bool) -> tuple[str, Path]:
    """The input, and the file to write.

    Raises:
        UserError: that is not what the command line names, or the file is there already.
    """
    if len(argv) != 3:
        raise UserError("name two files: the input, and the file to write: in.tsv out.jsonl")
    source, out = argv[1], Path(argv[2])
    if out.exists() and not overwrite:
        raise UserError(f"{out} is there already: take another name, or --overwrite")
    return source, out


def main(argv: list[str]) -> None:
    """Opens the run in --workdir, and writes what it tells of a file."""
    logging.set_verbosity(logging.WARNING)  # Orbax narrates
    try:
        source, out = files(argv, flags.FLAGS.overwrite)
        machine.join()
        tuned = job.reopened(Path(flags.FLAGS.workdir).expanduser().absolute())
        format, own = fields(tuned.run.config, FORMAT.value, SPLIT.value, FIELDS.value)
        predictor = Predictor(tuned, Layout(make_mesh()), ROWS.value)
        first = jax.process_index() == 0
        target = draft(out) if first else open(os.devnull, "w")  # noqa: SIM115
        with target as file, WRITERS[SUBMISSION.value](file) as write:
            told = say if first else (lambda _: None)
            found = blocks.blocks(source, format, own)
            values = predict(predictor, found, write, told, SCORE.value)
    except UserError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    if first and values:
        print("  ".join(f"{name} {value:.4f}" for name, value in values.items()))


if __name__ == "__main__":
    machine.keep_memory()
    flags.DEFINE_string("workdir", None, "The fine-tuned run's folder.", required=True)
    flags.DEFINE_bool("overwrite", False, "Replace the file that is there, at the end.")
    app.run(main)
