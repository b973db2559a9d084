"""NT-ASGD: SGD that averages its iterates once the held-out loss no longer falls.

Non-monotonically triggered averaged SGD, Merity et al. 2017 (arXiv 1708.02182), section 3.

    config.hooks = dict(nt_asgd=dict(name="pretrain.training.nt_asgd", metric="-held_out/loss"))

From the trigger on the average is the mean of all later iterates; evaluations and what is saved as
the best are of it.  PyTorch's ASGD, which the released code uses, leaves out the first of them.
"""

import dataclasses
from typing import Any

from pretrain.training import hooks
from pretrain.training.metrics import read_metric


@dataclasses.dataclass
class Hook(hooks.Hook):
    """Begins to average when an evaluation is worse than the best of those `n` earlier and more.

    Attributes:
        metric: the held-out number, as "-held_out/loss"; "-" in front of it: a lower one is better.
        n: the latest evaluations, which do not count for the best (the paper's interval n).
    """

    metric: str
    n: int = 5

    name = "nt_asgd"
    scalars = {"average_from": -1.0}

    def __post_init__(self):
        if self.n < 0:
            raise ValueError(f"n={self.n}: it is a number of evaluations, or 0")
        self.values: list[float] = []
        self.begin: int | None = None

    def __call__(self, step: int, state: Any, report: hooks.Report) -> None:
        """Compares an evaluation with those before it."""
        if not report.held_out or self.begin is not None:
            return
        value = read_metric(report.held_out, self.metric, "hooks.nt_asgd.metric")
        earlier = self.values[: -self.n or None]
        # Compared one by one: one that is not a number is not the best.
        if len(self.values) > self.n and any(value < x for x in earlier):
            self.begin = step
            report.scalars["average_from"] = step
        self.values.append(value)

    def state_dict(self) -> dict[str, Any]:
        """Returns the numbers so far, and the step of the trigger."""
        return {"values": self.values, "begin": self.begin}

    def load_state_dict(self, state: dict[str, Any], report: hooks.Report) -> None:
        """Goes on from a `state_dict`."""
        self.values, self.begin = list(state.get("values", [])), state.get("begin")
