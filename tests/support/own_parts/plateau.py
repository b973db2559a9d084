"""Plateau: a learning rate that falls, and training that ends, once a held-out loss stays up."""

import dataclasses
import math
from typing import Any

from pretrain.training import hooks


@dataclasses.dataclass
class Hook(hooks.Hook):
    """Multiplies the learning rate by a factor where an evaluation does not lower the loss.

    Attributes:
        loss: the held-out number that is to fall.
        at_least: how far it is to fall from one evaluation to the next.
        factor: of the learning rate.
        cuts: the run is finished in place of another cut.
    """

    loss: str
    at_least: float = 0.0
    factor: float = 0.5
    cuts: int = 1

    name = "plateau"
    scalars = {"lr_scale": 1.0}

    def __post_init__(self):
        self.done, self.last = 0, math.inf

    def __call__(self, step: int, state: Any, report: hooks.Report) -> None:
        """Compares the latest evaluation with the one before."""
        if report.held_out is None:
            return
        loss, last = report.held_out[self.loss], self.last
        self.last = loss
        if loss <= last - self.at_least:
            return
        if self.done == self.cuts:
            report.finish()
        self.done += 1
        report.scalars["lr_scale"] = self.factor**self.done

    def state_dict(self) -> dict[str, Any]:
        """Returns the cuts so far and the latest loss."""
        return {"done": self.done, "last": self.last}

    def load_state_dict(self, state: dict[str, Any], report: hooks.Report) -> None:
        """Goes on from a `state_dict`."""
        self.done, self.last = state.get("done", 0), state.get("last", math.inf)
