"""Groups sentences of about one length into batches."""

import itertools

SHORTEST = 8  # tokens that rows are padded to, at least


def list_lengths(longest: int) -> list[int]:
    """8, 10, 12, 14, 16, 20, 24, 28, 32 ... and at last the longest itself."""
    steps = (SHORTEST // 4 * n << k for k in itertools.count() for n in (4, 5, 6, 7))
    return [*itertools.takewhile(lambda n: n < longest, steps), longest]
