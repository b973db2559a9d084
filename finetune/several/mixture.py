"""Mixes the batches of several tasks: which task a step is of is a function of the seed.

Liu, Qiu & Huang 2016 (arXiv 1605.05101) draw the task of each step uniformly; MT-DNN (Liu et al.
2019, arXiv 1901.11504) puts the batches of all sets in one shuffled order; Stickland & Murray 2019
(arXiv 1902.02671) draw by a power of the sets' sizes.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from pretrain.data.batches import Batch, BatchLayout, Shapes
from pretrain.data.batches.shuffling import shuffle_array
from pretrain.runtime.errors import UserError


class SizedLayout(BatchLayout, Protocol):
    """A layout of so many examples an epoch, whose arrays bear their task's name."""

    size: int


# By kind: shares of the steps, up to a factor, from the tasks' steps an epoch and the power.
SHARES: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "uniform": lambda steps_T, _: np.ones(len(steps_T)),
    "proportional": lambda steps_T, _: steps_T,
    "annealed": lambda steps_T, power: steps_T**power,
}
KINDS = (*SHARES, "round_robin", "all")


class Mixture:
    """Reads each step from one task or from all: a `pretrain.data.batches.BatchLayout`.

    Steps come in blocks in which every task has a fixed number of them, in an order drawn for the
    block.  So the step says how often each task came before, and a resumed run needs nothing else.

    Attributes:
        size: examples of an epoch: those of all tasks; with kind "all" of the largest.
        L: positions that a step reads of an example, at most.
        counts_T: steps of each task in a block.
    """

    shuffle = True

    def __init__(
        self,
        layouts: Mapping[str, SizedLayout],
        *,
        seed: int,
        kind: str = "proportional",
        power: float = 0.5,
    ):
        """
        Args:
            layouts: of training, by task; all have as many rows.
            seed: of the order of tasks.
            kind: "uniform", "proportional" to the sizes, "annealed" (to their `power`),
                "round_robin" (in turn), or "all" (each step has a batch of every task).
            power: of the sizes, where the kind is "annealed".

        Raises:
            UserError: there is no such kind.
        """
        if kind not in KINDS:
            raise UserError(f"mixture.kind={kind!r} is none of {', '.join(KINDS)}")
        self.layouts, self.names = dict(layouts), list(layouts)
        self.seed, self.kind, self.power = seed, kind, power
        parts = list(layouts.values())
        self.B = parts[0].B
        # A step of all tasks reads a batch of each.
        self.L = (sum if kind == "all" else max)(x.L for x in parts)
        self.size = (max if kind == "all" else sum)(x.size for x in parts)
        self.counts_T = count_steps([x.steps_per_epoch for x in parts], kind, power)
        self.steps_per_epoch = -(-self.size // self.B)
        # Two: batches are read ahead, over the end of a block.
        self._draw_order = functools.lru_cache(2)(self._shuffle_block)

    def shapes(self) -> Shapes:
        """Returns the arrays of all tasks, of which a batch may have those of one."""
        return {name: x for layout in self.layouts.values() for name, x in layout.shapes().items()}

    def locate(self, step: int) -> dict[str, int]:
        """Returns the tasks of a step, each with the number of its batch."""
        if self.kind == "all":
            return dict.fromkeys(self.names, step)
        block, place = divmod(step, int(self.counts_T.sum()))
        order = self._draw_order(block)
        task = order[place]
        # A task counts its own batches: none is read twice or left out.
        before = block * self.counts_T[task] + (order[:place] == task).sum()
        return {self.names[task]: int(before)}

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        return {
            name: x
            for task, number in self.locate(step).items()
            for name, x in self.layouts[task].batch(number, rows).items()
        }

    def _shuffle_block(self, block: int) -> np.ndarray:
        tasks = np.repeat(np.arange(len(self.names)), self.counts_T)
        return tasks if self.kind == "round_robin" else shuffle_array(tasks, self.seed, block)

    def fingerprint(self) -> dict[str, Any]:
        """Returns as JSON all that batches depend on; a resumed run must have the same."""
        tasks = {name: layout.fingerprint() for name, layout in self.layouts.items()}
        power = {"power": self.power} if self.kind == "annealed" else {}
        return dict(layout="mixture", kind=self.kind, seed=self.seed, tasks=tasks, **power)


def count_steps(steps: Sequence[int], kind: str, power: float) -> np.ndarray:
    """Counts the steps of each task in a block, which is about as long as an epoch of all.

    Args:
        steps: of each task's own epoch.
    """
    steps_T = np.array(steps)
    if kind not in SHARES:
        return np.ones(len(steps_T), int)
    share_T = SHARES[kind](steps_T, power)
    # None is left out, however small.
    return np.maximum(np.round(share_T / share_T.sum() * steps_T.sum()), 1).astype(int)
