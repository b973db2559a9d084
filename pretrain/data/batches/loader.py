"""Batches of a layout in order, prefetched, from any step: Grain does the reading ahead."""

import contextlib
import itertools
import sys
from collections.abc import Callable, Generator, Iterator

import grain

from pretrain.data.batches import Batch, BatchLayout
from pretrain.data.batches.phases import Phases


class BatchSource:
    """A layout as Grain's random-access source: item k is (start + k, batch start + k)."""

    def __init__(self, layout: BatchLayout, start: int, rows: slice):
        self.layout, self.start, self.rows = layout, start, rows

    def __len__(self) -> int:
        # Grain asks for a length, and training has none.
        last = sys.maxsize // 2 if self.layout.shuffle else self.layout.steps_per_epoch
        return max(0, last - self.start)

    def __getitem__(self, k: int) -> tuple[int, Batch]:
        step = self.start + int(k)
        return step, self.layout.batch(step, self.rows)


def read_batches(
    layout: BatchLayout,
    start: int = 0,
    rows: slice = slice(None),
    *,
    threads: int = 2,
    prefetch: int = 8,
) -> Generator[tuple[int, Batch], None, None]:
    """Yields (step, batch) from step `start` on: for ever if the layout shuffles, else to its end.

    Args:
        rows: those of this process.
        threads: that read ahead.
        prefetch: batches read ahead.
    """
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=prefetch)
    # Grain's own state is not saved: it restores into any data set without a word.  The step is.
    dataset = grain.MapDataset.source(BatchSource(layout, start, rows))
    yield from dataset.to_iter_dataset(options)


def list_phases(layout: BatchLayout | Phases) -> list[BatchLayout]:
    """Lists the layouts whose batches come in turn."""
    return [layout.first, layout.then] if isinstance(layout, Phases) else [layout]


def read_training(
    layout: BatchLayout | Phases, start: int, rows: Callable[[BatchLayout], slice]
) -> Iterator[tuple[BatchLayout, Batch]]:
    """Yields (the layout in force, `rows(layout)` of its batch) from step `start` on, for ever."""
    begin = 0
    if isinstance(layout, Phases):
        first = read_batches(layout.first, start, rows(layout.first))
        with contextlib.closing(first):
            # Reading ahead stops where the phase does; what was read beyond it is dropped.
            for _, batch in itertools.islice(first, max(layout.steps - start, 0)):
                yield layout.first, batch
        begin, layout = layout.steps, layout.then
    for _, batch in read_batches(layout, max(start - begin, 0), rows(layout)):
        yield layout, batch
