"""Measures goodput: how much of a run's time counted."""

import time
from collections.abc import Callable


class Goodput:
    """The share of a run's time, since it was first started, that went into steps that count."""

    # Lost is the time of starting, compiling, waiting for data, evaluating and saving, of steps
    # that were lost with a life of the run and done again, and until its next life.
    def __init__(self, began: float, now: Callable[[], float] = time.time):
        self.start, self.now, self.productive = began, now, 0.0

    def add(self, seconds: float) -> None:
        self.productive += seconds

    def compute_share(self) -> float:
        return min(1.0, self.productive / max(self.now() - self.start, 1e-9))

    def state_dict(self, more: float) -> dict[str, float]:
        # `more` seconds of steps are yet to be added.
        return {"began": self.start, "productive": self.productive + more}

    def load_state_dict(self, state: dict[str, float]) -> None:
        # The earlier: a restored folder may have lost the heartbeat of the first start.
        self.start = min(self.start, state.get("began", self.start))
        self.productive = state.get("productive", 0.0)
