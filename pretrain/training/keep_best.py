"""The hook that keeps the best parameters of a run, whatever comes later."""

import dataclasses
import logging
import math
from collections.abc import Mapping
from typing import Any

from pretrain.checkpoint.paths import list_steps
from pretrain.training.hooks import Evaluation, Hook, Report, find_saved_state, refuse_overflow
from pretrain.training.metrics import read_metric, split_direction
from pretrain.training.reports.metrics_file import to_json
from pretrain.training.reports.progress_line import Progress
from pretrain.training.train_state import State


class KeepBest(Hook):
    """Keeps the parameters that did best in one of the held-out numbers.

    Attributes:
        value: the best so far; None: nothing yet.
        best: its evaluation; None: nothing yet.
    """

    name = "keeping the best"

    def __init__(
        self, every: int, saved, run, like, metric: str, patience: int, progress: Progress
    ):
        """
        Args:
            saved: `Checkpoints` of their own, which keep all.
            run: the `Checkpoints` of the run.
            like: the parameters, as jax.ShapeDtypeStructs.
            metric: "dev/accuracy", or "-dev/loss" of what is to be low.
            patience: evaluations in a row without a better one after which training ends; 0: none.
        """
        self.every, self.saved, self.run, self.like = every, saved, run, like
        self.metric, self.patience, self.progress = metric, patience, progress
        # None and not -inf, which JSON cannot say.
        self.value: float | None = None
        self.best: Evaluation | None = None
        self.since = 0

    def __call__(self, step: int, state: State, report: Report) -> None:
        if report.held_out is None:
            return
        self.compare(step, state.evaluated_params, report.held_out)
        if self.has_lost_patience:
            self.progress.say(f"step {step}: {self.patience} evaluations did not better the best")
            report.finish()

    def compare(self, step: int, params, values: Mapping[str, float]) -> None:
        """Saves the parameters if their evaluation betters the best.

        Raises:
            UserError: the evaluation has no such number.
        """
        value = read_metric(values, self.metric, "train.best")
        name, _ = split_direction(self.metric)
        self.since += 1
        if value > (-math.inf if self.value is None else self.value):  # which NaN never is
            # Before the save: room for one more, and those that checkpoints name stay.
            self.saved.keep_only(self._find_named_steps(self.step) | {self.step})
            with refuse_overflow():
                self.saved.save(step, {"params": params}, {"metric": name, "value": values[name]})
            self.value, self.since = value, 0
            self.best = Evaluation(step, {name: to_json(x) for name, x in values.items()})

    @property
    def step(self) -> int:
        """Returns the step of the best so far; -1: nothing yet."""
        return self.best.step if self.best else -1

    @property
    def has_lost_patience(self) -> bool:
        return bool(self.patience) and self.since >= self.patience

    @property
    def evaluation(self) -> Evaluation | None:
        """Returns the best evaluation so far, with the number of later ones; None: nothing yet."""
        return self.best and dataclasses.replace(self.best, since=self.since)

    def put_aside_unnamed(self) -> None:
        """Moves the best of earlier lives out of the way, where the run has no checkpoint left."""
        # Somebody may have deleted the checkpoints by hand, and these weights are all that is left.
        if steps := list_steps(self.saved.folder):
            logging.warning("no checkpoint names what is in %s: moved aside", self.saved.folder)
        self.saved.put_aside(steps)  # even of none: all processes wait there for each other

    def _find_named_steps(self, step: int) -> set[int]:
        """Returns what checkpoints of the run name as their best; `step` if they name none."""
        self.run.wait()
        states = (find_saved_state(position, self.name) for position in self.run.iter_positions())
        return {state.get("step", step) for state in states}

    def state_dict(self) -> dict[str, Any]:
        self.saved.wait()  # the weights are there before the checkpoint that names them
        values = self.best.values if self.best else {}
        return {"value": self.value, "since": self.since, "step": self.step, "values": values}

    def load_state_dict(self, state: dict[str, Any], report: Report) -> None:
        # Evaluations after the best come again.  If its weights are lost, the best is looked for
        # anew, beginning with the restored step.
        latest = self.saved.manager.latest_step()
        step = state.get("step", -1 if latest is None else latest)
        if named := self._find_named_steps(step):
            self.saved.keep_only(named)
        else:
            self.put_aside_unnamed()
        value, self.value, self.best, self.since = state.get("value"), None, None, 0
        if value is not None and not self.saved.has(step, {"params": self.like}):
            logging.warning("the best weights, of step %d, are lost: these count anew", step)
            report.pending.append(self.name)
            return
        if value is not None:
            self.value, self.best = value, Evaluation(step, state.get("values", {}))
        self.since = state.get("since", 0)
        # The recipe may have more patience than the run had when it was finished.
        report.finished_by = [name for name in report.finished_by if name != self.name]
        if self.has_lost_patience:
            report.finished_by.append(self.name)
            report.finish()
