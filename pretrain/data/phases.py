"""Phases: so many batches of one layout, then those of another (BERT: short rows, then long)."""

import dataclasses
from typing import Any

from pretrain.data import Layout
from pretrain.errors import UserError


@dataclasses.dataclass(frozen=True)
class Phases:
    """The batches of `first` for `steps` steps, then those of `then` from its own step 0 on.

    BERT trains on rows of 128 tokens for 90% of its steps and on rows of 512 for the rest (Devlin
    et al., 2019, A.2).  The position is one number still; see `stream.training`.

    Raises:
        UserError: there is no first step, or a layout ends.
    """

    first: Layout
    then: Layout
    steps: int

    def __post_init__(self):
        if self.steps < 1:
            raise UserError(f"steps={self.steps}: the first phase has 1 or more")
        if not (self.first.shuffle and self.then.shuffle):
            raise UserError("phases are for training: held-out text is read once, by one layout")

    def fingerprint(self) -> dict[str, Any]:
        """What a position depends on: compare it before going on from one."""
        first, then = self.first.fingerprint(), self.then.fingerprint()
        return dict(layout="phases", first=first, then=then, steps=self.steps)
