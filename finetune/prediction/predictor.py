"""Predicts examples with the best weights of a fine-tuned run, a block of them at a time."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import optax

from finetune import datasets
from finetune.datasets.files import join_places
from finetune.inputs.batches import Examples
from finetune.prediction.example_predictor import ExamplePredictor, Outputs
from finetune.tuned_run import TunedRun
from pretrain.distributed import processes
from pretrain.distributed.sharding import Layout
from pretrain.inference.trained_run import load_weights
from pretrain.runtime.errors import TerminatedError
from pretrain.runtime.progress import Progress, say
from pretrain.training.compiled_steps import Steps


class Predictor(ExamplePredictor):
    """Predicts with a fine-tuned run, on all devices of a machine.

    Attributes:
        task: the half of `finetune.tasks` to train.
        name: of the one of several tasks; "": there is one.
        step: of the weights, which are the best where the run kept them; -1 before they are read.
    """

    def __init__(self, tuned: TunedRun, layout: Layout, rows: int = 0):
        """
        Args:
            rows: of a batch, rounded up to what the devices divide; 0: the recipe's eval_B.
        """
        self.run, self.data, self.task, self.name = tuned
        self.layout, self.L = layout, self.data.inputs.L
        rows = rows or self.run.config.batches.get("eval_B", 32)
        # Every device has as many rows as the others.
        self.B = -(-rows // layout.num_shards("B")) * layout.num_shards("B")
        self.step, self._stop = -1, processes.Stop()
        self._steps: Steps | None = None
        self._params: Any = None

    def __call__(self, examples: Sequence[dict]) -> Outputs:
        """Computes the task's `predict` of all rows of these examples.

        Raises:
            UserError: the run has no weights.
            TerminatedError: the process was told to terminate.
        """
        # In the order of the examples, so that outputs need no numbers of theirs.
        batches = Examples(self.data.arrays(examples), B=self.B, L=self.L, task=self.name)
        if self._steps is None:  # the first examples show the shapes to compile for
            self._steps = Steps(self.task, optax.identity(), self.layout, [batches], seed=0)
            like = self._steps.like.params
            # To predict one of several tasks, the others' parameters need not be read.
            folders = [f"{part}/" for part in like] if self.name else []
            self._params, self.step = load_weights(self.run, like, *folders)
        outputs = self._steps.predict(self._params, batches, self._stop)
        if outputs is None:
            raise TerminatedError("told to terminate before the end: there is no result")
        return outputs

    @property
    def folder(self) -> str:
        return str(self.run.workdir)

    @property
    def weights(self) -> str:
        return f"step {self.step}"


def predict_blocks(
    predictor: ExamplePredictor,
    blocks: Iterable[datasets.Read],
    write: Callable[[dict, dict], None],
    say: Callable[[str], None] = say,
    score: bool = True,
    total: int = 0,
) -> dict[str, float]:
    """Predicts all examples, a block at a time.

    Args:
        write: called with each example and its prediction.
        say: called with what the user should know.
        score: labelled examples are scored; all of them stay in memory until the end.
        total: so many examples there are; 0: it is not known.

    Returns:
        The task's metrics on the examples whose labels are known; {}: there are none.
    """
    scored: list[dict] = []
    parts: list[Outputs] = []
    count, progress, notes = 0, Progress("predicting", total), predictor.data.notes
    gaps: list[str] = []
    for block in blocks:
        lines, labelled, outputs = predictor.predict_lines(block.examples)
        for example, line in zip(block.examples, lines, strict=True):
            write(example, line)
        if labelled and score:
            scored += labelled
            parts.append(outputs)
        count += len(lines)
        gaps += [example["where"] for example in block.examples if "gap" in example]
        for note in dict.fromkeys([*block.notes, *notes]):
            say(note)
        notes.clear()
        progress(count, f"{count:,} examples, {count / progress.seconds:,.0f} examples/s")
    if gaps:
        say(f"null, as a text is empty: {len(gaps):,}, the first at {join_places(gaps[:3])}")
    say(f"{count:,} example{'s' * (count != 1)}, by the weights of {predictor.weights}")
    return predictor.data.scores(scored, join_outputs(parts)) if scored else {}


def join_outputs(blocks: Sequence[Outputs]) -> Outputs:
    """Concatenates the outputs of blocks, padded with zeros to the most options of any."""
    joined = {}
    for name in blocks[0]:
        parts = [block[name] for block in blocks]
        shape = np.max([x.shape[1:] for x in parts], axis=0).astype(int)
        joined[name] = np.concatenate(
            [
                # Blocks differ where the most options of an example do.
                np.pad(x, [(0, 0), *((0, n - m) for n, m in zip(shape, x.shape[1:], strict=True))])
                for x in parts
            ]
        )
    return joined
