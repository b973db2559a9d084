"""Phases: so many batches of one layout, then those of another (BERT: short rows, then long)."""

from typing import Any

from pretrain.data import Batch, Layout
from pretrain.errors import UserError


class Phases:
    """The batches of `first` for `steps` steps, then those of `then` from its own step 0 on.

    BERT trains on rows of 128 tokens for 90% of its steps and on rows of 512 for the rest (Devlin
    et al., 2019, A.2).  The position is one number still; `B`, `L` and `steps_per_epoch` are those
    of `then`.

    Raises:
        UserError: there is no first step, or a layout ends.
    """

    def __init__(self, first: Layout, then: Layout, steps: int):
        if steps < 1:
            raise UserError(f"steps={steps}: the first phase has 1 or more")
        if not (first.shuffle and then.shuffle):
            raise UserError("phases are for training: held-out text is read once, by one layout")
        self.first, self.then, self.steps = first, then, steps
        self.B, self.L, self.shuffle = then.B, then.L, then.shuffle
        self.steps_per_epoch = then.steps_per_epoch

    def fingerprint(self) -> dict[str, Any]:
        """What a position depends on: compare it before going on from one."""
        return dict(
            layout="phases",
            first=self.first.fingerprint(),
            then=self.then.fingerprint(),
            steps=self.steps,
        )

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """These rows of batch number `step`; of `first`, the same share of its own B rows."""
        if step >= self.steps:
            return self.then.batch(step - self.steps, rows)
        begin, end, _ = rows.indices(self.B)
        share = slice(begin * self.first.B // self.B, end * self.first.B // self.B)
        return self.first.batch(step, share)
