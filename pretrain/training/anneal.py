"""Anneals the learning rate once a held-out number stays where it is, and then ends the run.

config.hooks = dict(anneal=dict(name="pretrain.training.anneal", metric="dev/f1"))
"""

import dataclasses
import math
from typing import Any

from pretrain.training import hooks
from pretrain.training.metrics import read_metric


@dataclasses.dataclass
class Hook(hooks.Hook):
    """Multiplies the learning rate by a factor, a few times, when a number has stopped to improve.

    Peters et al. 2017 (arXiv 1705.00108).

    Attributes:
        metric: the held-out number, as "dev/f1"; "-" in front of it: a lower one is better.
        patience: evaluations that do not better the best before the first cut.
        factor: of the learning rate, at each cut.
        cuts: how many there are.
        length: evaluations after each cut; after those of the last the run is finished.
    """

    metric: str
    patience: int = 5
    factor: float = 0.1
    cuts: int = 2
    length: int = 5

    name = "anneal"
    scalars = {"lr_scale": 1.0}

    def __post_init__(self):
        self.best, self.since, self.done = -math.inf, 0, 0

    def __call__(self, step: int, state: Any, report: hooks.Report) -> None:
        if not report.held_out:
            return
        value = read_metric(report.held_out, self.metric, "hooks.anneal.metric")
        self.since += 1
        if not self.done and value > self.best:  # never of a number that is not finite
            self.best, self.since = value, 0
        # The paper cuts the rate at the best epoch.  Which it was is known only later, so this
        # waits.
        if self.since < (self.length if self.done else self.patience):
            return
        if self.done == self.cuts:
            return report.finish()
        self.since, self.done = 0, self.done + 1
        report.scalars["lr_scale"] = self.factor**self.done

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "since": self.since, "done": self.done}

    def load_state_dict(self, state: dict[str, Any], report: hooks.Report) -> None:
        self.best = state.get("best", -math.inf)
        self.since, self.done = state.get("since", 0), state.get("done", 0)
