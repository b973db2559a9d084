"""Counts what a run has spent since its first start, over all of its lives."""

import time
from collections.abc import Callable
from typing import Any


class Totals:
    """Tokens, operations and seconds of a run, written with every line of its metrics.

    Steps that were lost with a life of the run, and the time until its next life, do not count: a
    checkpoint knows what led to it.

    Attributes:
        tokens: positions of rows that were trained on, with padding.
        flops: operations of the model, see `Objective.flops`.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self.now, self.started, self.before = now, now(), 0.0
        self.tokens, self.flops = 0, 0.0

    @property
    def seconds(self) -> float:
        """Returns how long the run has taken, with compiling, evaluating and saving."""
        return self.before + self.now() - self.started

    def add(self, tokens: int, flops: float) -> None:
        self.tokens, self.flops = self.tokens + tokens, self.flops + flops

    def state_dict(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "flops": self.flops, "seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tokens, self.flops = state.get("tokens", 0), state.get("flops", 0.0)
        self.before = state.get("seconds", 0.0)
