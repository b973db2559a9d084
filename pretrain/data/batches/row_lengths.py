"""Lengths that batches are cut to: few, for a program is compiled for each, and little padding."""

from collections.abc import Sequence


def list_lengths(lengths: Sequence[int], L: int) -> list[int]:
    """Returns the lengths below L in order, and L."""
    return [*sorted(n for n in lengths if 0 < n < L), L]


def choose_length(lengths: Sequence[int], longest: int) -> int:
    """Chooses the least length that holds a batch's longest row.

    Args:
        lengths: of `list_lengths`.
        longest: positions up to that row's last valid one.
    """
    return next(n for n in lengths if longest <= n)
