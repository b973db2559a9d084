"""Labels of held-out examples that training never showed: each counts as an error, and is named."""

from collections.abc import Iterable

from pretrain.runtime.errors import UserError

UNKNOWN = -1  # the number of a label that an example does not have
UNSEEN = -2  # of one that it has, and that is none of the task's
NAMED = 9  # at most, of those that are new


class Unseen:
    """The labels of a task that are none of those it learned.

    Attributes:
        closed: there are no such labels: one that comes up is a mistake.
    """

    def __init__(self, closed: bool):
        self.closed = closed
        self._places: dict[str, str] = {}  # of each label, where it came up first
        self._told = 0

    def number(self, label: str, known: Iterable[str], where: str) -> int:
        """UNSEEN; the label is to be named.

        Raises:
            UserError: the labels are closed.
        """
        if self.closed:
            raise UserError(f"{where}: label {label!r} is none of {', '.join(known)}")
        self._places.setdefault(label, where)
        return UNSEEN

    def notes(self) -> list[str]:
        """A line that names the labels which came up since the last call, if there are any."""
        new = [f"{label!r} ({where})" for label, where in self._places.items()][self._told :]
        self._told = len(self._places)
        if not new:
            return []
        more = f" and {len(new) - NAMED:,} more" * (len(new) > NAMED)
        names = ", ".join(new[:NAMED]) + more
        return [f"labels that training never showed count as errors, not in the loss: {names}"]
