"""The stream delivers a layout's batches in order, from any step on."""

import itertools

import numpy as np
import pytest

from pretrain.data import batches
from pretrain.data.batches.loader import stream
from tests.support import corpora


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return corpora.make(tmp_path_factory.mktemp("stream"))


def build(corpus, split="train"):
    return batches.build("lanes", corpus, split=split, B=4, L=32, reuse_len=16)


def test_batches_come_in_order_from_any_step(corpus):
    layout = build(corpus)
    start = layout.steps_per_epoch - 2  # over the end of an epoch
    for offset, (step, batch) in enumerate(itertools.islice(stream(layout, start), 6)):
        assert step == start + offset
        for key, value in layout.batch(step).items():
            np.testing.assert_array_equal(batch[key], value)


def test_going_on_equals_going_straight_through(corpus):
    straight = [b["tokens_BL"] for _, b in itertools.islice(stream(build(corpus)), 30)]
    resumed = [b["tokens_BL"] for _, b in itertools.islice(stream(build(corpus), 17), 13)]
    np.testing.assert_array_equal(straight[17:], resumed)


def test_each_process_reads_its_rows(corpus):
    whole = next(stream(build(corpus), 3))[1]
    half = next(stream(build(corpus), 3, slice(2, 4)))[1]
    np.testing.assert_array_equal(half["tokens_BL"], whole["tokens_BL"][2:])
