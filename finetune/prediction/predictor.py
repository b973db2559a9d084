"""A fine-tuned run that tells of examples, a block of them at a time, by its best weights."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import optax

from finetune import job
from finetune.inputs.batches import Examples
from finetune.prediction import streaming
from pretrain.distributed import processes
from pretrain.distributed.sharding import Layout
from pretrain.runtime.errors import TerminatedError
from pretrain.runtime.progress import say
from pretrain.training.compiled_steps import Steps

EVERY = 5.0  # seconds

Outputs = dict[str, np.ndarray]


class Predictor:
    """A fine-tuned run that tells of examples, on all devices of a machine.

    Attributes:
        data, task: the halves of `finetune.tasks`.
        step: that the weights are of: those that did best, where the run kept them.
    """

    def __init__(self, tuned: job.TunedRun, layout: Layout, rows: int = 0):
        """`rows`: of a batch, rounded up to what the devices divide; 0: the recipe's eval_B."""
        self.run, self.data, self.task = tuned
        self.layout, self.L = layout, self.run.config.batches.L
        rows = rows or self.run.config.batches.get("eval_B", 32)
        self.B = -(-rows // layout.num_shards("B")) * layout.num_shards("B")
        self.step, self._stop = -1, processes.Stop()
        self._steps: Steps | None = None
        self._params: Any = None

    def __call__(self, examples: Sequence[dict]) -> Outputs:
        """What the task's `predict` gives of all rows of these examples.

        Raises:
            UserError: the run has no weights.
            TerminatedError: the process was told to terminate.
        """
        batches = Examples(self.data.arrays(examples), B=self.B, L=self.L)
        if self._steps is None:
            self._steps = Steps(self.task, optax.identity(), self.layout, [batches], seed=0)
            self._params, self.step = self.run.weights(self._steps.like.params)
        outputs = self._steps.predict(self._params, batches, self._stop)
        if outputs is None:
            raise TerminatedError("told to terminate before the end: there is no result")
        return outputs

    def lines(self, examples: Sequence[dict]) -> tuple[list[dict], list[dict], Outputs]:
        """What is told of each example, and those whose labels are known with their outputs."""
        known = [job.has_labels(example) for example in examples]
        lines: list[dict] = [{}] * len(examples)
        labelled: list[dict] = []
        outputs: Outputs = {}
        for kind in set(known):
            numbers = [i for i, own in enumerate(known) if own == kind]
            chosen = [examples[i] for i in numbers]
            found = self(chosen)
            for i, line in zip(numbers, self.data.format_predictions(chosen, found), strict=True):
                lines[i] = line
            if kind:
                labelled, outputs = chosen, found
        return lines, labelled, outputs


def predict(
    predictor: Predictor,
    found: Iterable[streaming.Read],
    write: Callable[[dict, dict], None],
    say: Callable[[str], None] = say,
    score: bool = True,
) -> dict[str, float]:
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
    done, said, notes = 0, time.monotonic(), predictor.data.notes
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
    return predictor.data.scores(kept, joined(held)) if kept else {}


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
