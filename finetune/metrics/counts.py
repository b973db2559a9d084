"""Counts hits, predictions and references: what precision, recall and F1 are computed from."""

from collections.abc import Sequence
from typing import NamedTuple

from pretrain.runtime.errors import UserError


class Counts(NamedTuple):
    """Numbers of correct predictions, of predictions and of references of one class."""

    # A ratio of nothing to nothing is 0.0, as the scripts of the benchmarks have it.
    correct: int
    predicted: int
    actual: int

    @property
    def precision(self) -> float:
        return self.correct / max(self.predicted, 1)

    @property
    def recall(self) -> float:
        return self.correct / max(self.actual, 1)

    @property
    def f1(self) -> float:
        return 2 * self.correct / max(self.predicted + self.actual, 1)


def check_paired(predictions: Sequence, references: Sequence, where: str = "scores") -> None:
    """Raises UserError unless there are as many predictions as references, and at least one."""
    if len(predictions) != len(references):
        raise UserError(f"{where}: {len(predictions)} predictions for {len(references)} references")
    if not len(references):
        raise UserError(f"{where}: there is nothing to score")
