"""Counts labels of held-out examples that training lacks as errors, and names them."""

from collections.abc import Iterable

from pretrain.runtime.errors import UserError

UNKNOWN = -1  # the id of a label that an example does not have
UNSEEN = -2  # the id of a label that none of the task's is
MOST_NAMED = 9  # in one note


class Unseen:
    """Labels that are none of those a task learned; `closed`: such a label ends the job."""

    def __init__(self, closed: bool):
        self.closed = closed
        self._places: dict[str, str] = {}  # of each label, where it came up first
        self._noted = 0

    def number(self, label: str, known: Iterable[str], where: str) -> int:
        """Returns UNSEEN, and remembers the label for the next notes.

        Raises:
            UserError: the labels are closed.
        """
        if self.closed:
            raise UserError(f"{where}: label {label!r} is none of {', '.join(known)}")
        self._places.setdefault(label, where)
        return UNSEEN

    def notes(self) -> list[str]:
        """Returns a line that names the labels unseen since the last call, if there are any."""
        new = [f"{label!r} ({where})" for label, where in self._places.items()][self._noted :]
        self._noted = len(self._places)
        if not new:
            return []
        more = f" and {len(new) - MOST_NAMED:,} more" * (len(new) > MOST_NAMED)
        names = ", ".join(new[:MOST_NAMED]) + more
        return [f"labels that training never showed count as errors, not in the loss: {names}"]
