"""Packing: examples of unequal lengths, laid into rows one behind the other."""

import numpy as np

Pack = tuple[int, tuple[int, ...]]  # so many rows, each with examples of these sizes


def pack_examples(sizes_N: np.ndarray, room: int, most: int) -> np.ndarray:
    """Packs each example into the row where it leaves the least room, the longest first.

    Args:
        sizes_N: of the examples, from 1 to `room`.
        room: of a row.
        most: examples that a row holds at most.

    Returns:
        Numbers of the examples of each row, int [R, most]; -1: no more.  A row has its examples in
        order, and the rows are in the order of their first.
    """
    # By how often a size occurs: there are few sizes, however many examples.
    packs = pack_sizes(np.bincount(sizes_N, minlength=room + 1).tolist(), room, most)
    order_N = np.argsort(sizes_N, kind="stable")
    taken = np.searchsorted(sizes_N[order_N], np.arange(room + 1))
    none = len(sizes_N)
    blocks = [np.full((0, most), none)]
    for rows, sizes in packs:
        block = np.full((rows, most), none)
        for place, size in enumerate(sizes):
            block[:, place] = order_N[taken[size] : taken[size] + rows]
            taken[size] += rows
        blocks.append(block)
    rows_RO = np.sort(np.concatenate(blocks), 1)
    rows_RO = rows_RO[np.argsort(rows_RO[:, 0], kind="stable")]
    return np.where(rows_RO < none, rows_RO, -1)


def pack_sizes(counts: list[int], room: int, most: int) -> list[Pack]:
    """Packs so many examples of each size, see `pack_examples`.

    Args:
        counts: examples of size 0, of which there is none, 1, 2 ... `room`.
    """
    full: list[Pack] = []
    by_left: list[list[Pack]] = [[] for _ in range(room + 1)]  # rows that are not full

    def keep(rows: int, sizes: tuple[int, ...]) -> None:
        left = room - sum(sizes)
        if rows:
            (by_left[left] if left and len(sizes) < most else full).append((rows, sizes))

    for size in range(room, 0, -1):
        count = counts[size]
        while count:
            left = next((left for left in range(size, room + 1) if by_left[left]), room)
            rows, sizes = by_left[left].pop() if by_left[left] else (count, ())
            # One row takes all that fit before the next takes any: it has the least room left.
            each = min(left // size, most - len(sizes))
            filled = min(rows, count // each)
            rest = 0 if filled == rows else count - filled * each
            keep(filled, (*sizes, *[size] * each))
            keep(int(rest > 0), (*sizes, *[size] * rest))
            if sizes:
                keep(rows - filled - (rest > 0), sizes)
            count -= filled * each + rest
    return full + [pack for packs in by_left for pack in packs]
