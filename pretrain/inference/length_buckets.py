"""Lists the few lengths that sentences are padded to, so that few programs are compiled."""

import itertools

SHORTEST = 8  # tokens that rows are padded to, at least


def list_lengths(longest: int) -> list[int]:
    """Lists the lengths that rows are padded to: 8, 10, 12, 14, 16, 20, ... and the longest."""
    # Four for each doubling: few programs, and above 8 tokens at most a fifth of a row is padding.
    steps = (SHORTEST // 4 * n << k for k in itertools.count() for n in (4, 5, 6, 7))
    return [*itertools.takewhile(lambda n: n < longest, steps), longest]
