"""What scores are counted from: hits among what was told and what was there."""

from collections.abc import Sequence
from typing import NamedTuple

from pretrain.runtime.errors import UserError


class Counts(NamedTuple):
    """Things found rightly, things found, and things that were there to be found."""

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


def paired(predictions: Sequence, references: Sequence, where: str = "scores") -> None:
    """Raises UserError unless there are as many predictions as references, and at least one."""
    if len(predictions) != len(references):
        raise UserError(f"{where}: {len(predictions)} predictions for {len(references)} references")
    if not len(references):
        raise UserError(f"{where}: there is nothing to score")
