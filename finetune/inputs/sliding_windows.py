"""A text too long for a row, read in windows that overlap: which there are, and whose a token is.

Follows BERT's run_squad.py (Devlin et al. 2019), whose windows XLNet's has, too.
"""

from collections.abc import Sequence

import numpy as np


def windows(n: int, room: int, stride: int) -> list[range]:
    """Ranges of at most `room` tokens that cover all `n`, each `stride` after the one before it.

    Room smaller than the stride is the stride.  A text without tokens has one empty window.
    """
    stride = min(stride, room)
    starts = range(0, max(n - room, 0) + stride, stride)
    return [range(start, min(start + room, n)) for start in starts]


def owners(found: Sequence[range], n: int) -> np.ndarray:
    """[n]: the number of the window in which each token has the most context.

    That is the lesser of the tokens before and behind it, and a hundredth of the window's length;
    of equals the first window.
    """
    best_N, whose_N = np.full(n, -np.inf), np.zeros(n, np.int32)
    for number, window in enumerate(found):
        place = np.arange(len(window))
        own = np.minimum(place, place[::-1]) + 0.01 * len(window)
        at = slice(window.start, window.stop)
        whose_N[at] = np.where(own > best_N[at], number, whose_N[at])
        best_N[at] = np.maximum(own, best_N[at])
    return whose_N


def touched(starts: np.ndarray, ends: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """The first and the last token that have any of the characters [start, end); None: none has."""
    (found,) = np.nonzero(np.maximum(starts, start) < np.minimum(ends, end))
    return (int(found[0]), int(found[-1])) if len(found) else None
