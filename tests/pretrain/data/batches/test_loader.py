"""The stream delivers a layout's batches in order, from any step on."""

import itertools

from pretrain.data import batches
from pretrain.data.batches.loader import read_batches
from tests.support.batch_text import assert_same_batch


def test_batches_come_in_order_from_any_step(corpus):
    layout = batches.build("lanes", corpus, B=4, L=32, reuse_len=16)
    start = layout.steps_per_epoch - 2  # over the end of an epoch
    rows = slice(2, 4)  # of one of two processes
    for offset, (step, batch) in enumerate(itertools.islice(read_batches(layout, start, rows), 6)):
        assert step == start + offset
        assert_same_batch(batch, layout.batch(step, rows))
