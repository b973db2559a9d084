"""How each system frames a text: the marks it has learned to read before and behind it."""

from collections.abc import Mapping
from typing import NamedTuple

from pretrain.objectives import special_id
from pretrain.runtime.errors import UserError


class Frame(NamedTuple):
    """Names of special tokens around one text, which itself is segment 0."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    after_segments: tuple[int, ...] = ()  # of the marks behind the text; none: all 0

    def ids(self, special: Mapping[str, int]) -> tuple[list[int], list[int]]:
        """The marks' ids, before and behind; UserError if the tokenizer lacks one."""
        before, after = ([special_id(special, n) for n in names] for names in self[:2])
        return before, after


FRAMES = {  # by the name of the objective
    "mlm": Frame(("cls",), ("sep",)),
    "plm": Frame((), ("sep", "cls"), (0, 2)),  # as pretraining has it: <cls> is its own segment
    "clm": Frame(),
    "bilm": Frame(("bos",), ("eos",)),
}


def frame(objective: str) -> Frame:
    """How a run of this objective frames one text.

    Raises:
        UserError: it is not known.
    """
    if objective not in FRAMES:
        raise UserError(f"it is not known how objective {objective!r} frames a text: see FRAMES")
    return FRAMES[objective]
