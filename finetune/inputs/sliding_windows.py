"""Splits a text too long for a row into overlapping windows, and assigns its tokens to them.

Follows BERT's run_squad.py (Devlin et al. 2019), whose windows XLNet's has, too.
"""

from collections.abc import Sequence

import numpy as np


def split_windows(n: int, room: int, stride: int) -> list[range]:
    """Splits `n` tokens into ranges of at most `room`, each `stride` after the one before it."""
    # A larger stride would leave tokens out.  A text without tokens has one empty window.
    stride = min(stride, room)
    starts = range(0, max(n - room, 0) + stride, stride)
    return [range(start, min(start + room, n)) for start in starts]


def assign_tokens(windows: Sequence[range], n: int) -> np.ndarray:
    """Returns [n], the number of the window in which each of n tokens has the most context."""
    most_N, number_N = np.full(n, -np.inf), np.zeros(n, np.int32)
    for number, window in enumerate(windows):
        place = np.arange(len(window))
        # As `_check_is_max_context`: the lesser of the tokens before and behind, plus a hundredth
        # of the window's length.  The first of equal windows counts.
        context = np.minimum(place, place[::-1]) + 0.01 * len(window)
        at = slice(window.start, window.stop)
        number_N[at] = np.where(context > most_N[at], number, number_N[at])
        most_N[at] = np.maximum(context, most_N[at])
    return number_N


def find_tokens(
    starts: np.ndarray, ends: np.ndarray, start: int, end: int
) -> tuple[int, int] | None:
    """Returns the first and the last token with any of the characters [start, end), if any has."""
    (tokens,) = np.nonzero(np.maximum(starts, start) < np.minimum(ends, end))
    return (int(tokens[0]), int(tokens[-1])) if len(tokens) else None
