"""Adds up the metrics and the times of recent steps."""

import contextlib
import copy
import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from modules.metrics import Metrics, Sum, add
from pretrain.data.batches import split_tasks
from pretrain.distributed.sharding import parse_letters
from pretrain.training.metrics import compute_means
from pretrain.training.train_state import StepMetrics


def measure_length(batch: Mapping[str, Any], most: int) -> int:
    """Measures how many positions a batch has of each row, those of several tasks added up.

    Args:
        most: of its layout, which may cut a batch to fewer; also the result where no array says.
    """
    lengths: dict[str, int] = {}
    for task, arrays in split_tasks(batch).items():
        for name, x in arrays.items():
            if (axis := parse_letters(name).find("L")) >= 0:
                lengths[task] = max(lengths.get(task, 0), x.shape[axis])
    return min(sum(lengths.values()) or most, most)


class Meter:
    """Adds up recent steps' sums, one step late so that the device never waits for the host."""

    def __init__(self):
        self.late: StepMetrics | None = None
        self.late_counts = False  # that step is timed
        self.compiling = True  # during the first step of a shape, which is not timed
        self.wait = 0.0  # for the batch of this step
        self._reset()

    def _reset(self) -> None:
        self.sums: Metrics = {}
        self.steps, self.seconds, self.waited = 0, 0.0, 0.0
        self.tokens, self.flops = 0, 0.0
        self.began: float | None = None

    @contextlib.contextmanager
    def measure_wait(self):
        self.began = began = time.monotonic()
        yield
        self.wait = time.monotonic() - began

    def add(
        self, metrics: StepMetrics | None, tokens: int = 0, flops: float = 0.0
    ) -> StepMetrics | None:
        """Takes in a step's metrics, on the device still; returns those of the step before."""
        # The step before: by now it is done, or soon will be, while this one runs on.
        done, self.late, dispatched = self.late, metrics, time.monotonic()
        done = jax.device_get(done)
        if self.late_counts:
            self.seconds += time.monotonic() - dispatched
        if done and not done.consecutive_skips:  # a skipped step has no numbers worth adding
            norm = Sum(done.grad_norm, np.float32(1))
            self.sums = add(self.sums, {**done.sums, "grad_norm": norm, **done.norms})
        self.late_counts = self.began is not None and not self.compiling
        if self.began is not None and self.late_counts:
            self.seconds += dispatched - self.began
            self.waited, self.wait = self.waited + self.wait, 0.0
            self.steps += metrics is not None
            self.tokens, self.flops = self.tokens + tokens, self.flops + flops
        self.began, self.compiling = None, False
        return done

    def state_dict(self) -> dict[str, dict[str, Any]]:
        # JSON keeps a float32 exactly: it is written as the float64 of the same value.
        return {
            name: dataclasses.asdict(x)
            | {"total": np.asarray(x.total).tolist(), "weight": float(x.weight)}
            for name, x in self.sums.items()
        }

    def load_state_dict(self, state: dict[str, dict[str, Any]]) -> None:
        self.sums = {
            name: Sum(np.float32(x.pop("total")), np.float32(x.pop("weight")), **x)
            for name, x in copy.deepcopy(state).items()
        }

    @property
    def busy(self) -> float:
        """Returns seconds of steps since the last reading, without the wait for batches."""
        return self.seconds - self.waited

    def read(self) -> tuple[dict[str, float], dict[str, float]]:
        """Returns (means, rates) since the last reading, and starts anew."""
        values, seconds = compute_means(self.sums), max(self.seconds, 1e-9)
        rates = {
            "steps_per_s": self.steps / seconds,
            "tokens_per_s": self.tokens / seconds,
            "flops_per_s": self.flops / seconds,
            "data_wait": self.waited / seconds,
        }
        self._reset()
        return values, rates
