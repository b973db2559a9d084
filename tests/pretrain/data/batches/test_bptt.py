"""Rows read their shares by windows of varying length: every token once an epoch."""

import itertools

import numpy as np
import pytest

from pretrain.data import batches as layouts
from pretrain.data.batches.loader import read_batches
from tests.support.batch_text import text_of

B, BPTT = 3, 12
FIELDS = dict(B=B, L=16, bptt=BPTT, std=2.0, short=0.3)


def build(corpus, split="train", **fields):
    return layouts.build("bptt", corpus, split=split, **FIELDS | fields)


def read_epochs(layout, epochs):
    """The batches of the first epochs, each a list; a row that does not go on opens the next."""
    found = []
    for step in itertools.count():
        batch = layout.batch(step)
        if not batch["continues_B"].any():
            found.append([])
        if len(found) > epochs:
            return found[:-1]
        found[-1].append(batch)


def rows_of(batches, name):
    """What each row reads, its windows joined without their padding."""
    return [
        np.concatenate([batch[name][row][batch["valid_BL"][row]] for batch in batches])
        for row in range(B)
    ]


def text_of_epoch(layout, number):
    stream = layout.epoch(number).stream
    begins = stream.shift + stream.begins[:-1]
    return text_of(layout.corpus, np.searchsorted(layout.corpus.documents, begins))


@pytest.mark.parametrize("backward", [False, True])
def test_each_epoch_s_text_is_read_once_by_rows_that_go_on(corpus, backward):
    layout = build(corpus, backward=backward, seed=3)
    for number, batches in enumerate(read_epochs(layout, 3)):
        text = text_of_epoch(layout, number)[:: -1 if backward else 1]
        rows = rows_of(batches, "next_BL")
        np.testing.assert_array_equal(np.concatenate(rows), text)
        assert np.ptp([len(row) for row in rows]) <= 1
        before = np.append(corpus.tokenizer.special["eod"], text[:-1])
        np.testing.assert_array_equal(np.concatenate(rows_of(batches, "tokens_BL")), before)
        assert all(batch["continues_B"].all() for batch in batches[1:])


def test_lengths_of_windows_are_drawn_as_the_paper_s():
    layout = layouts.configure("bptt", B=1)
    layout.shuffle, layout.share = True, 2_000_000
    ends = layout.draw_ends(0)
    lengths = np.diff(ends, prepend=0)[:-1]
    assert ends[-1] == layout.share
    # The integer part of N(70, 5), and of N(35, 5) for one in twenty; beyond 80 they are cut.
    assert lengths.mean() == pytest.approx(0.95 * 69.5 + 0.05 * 34.5 - 0.04, abs=0.15)
    assert np.mean(lengths < 52) == pytest.approx(0.05, abs=0.004)
    assert lengths[lengths > 52].std() == pytest.approx(5, abs=0.1)
    assert lengths.max() == 80
    assert len({tuple(layout.draw_ends(n)[:9]) for n in range(5)}) == 5


def test_windows_are_padded_to_the_least_length_that_holds_them(corpus):
    plain, cut = build(corpus), build(corpus, lengths=(12, 8))
    for step in range(20):
        whole, batch = plain.batch(step), cut.batch(step)
        L = batch["tokens_BL"].shape[1]
        assert min(n for n in (8, 12, 16) if n >= whole["valid_BL"].sum(1).max()) == L
        for name, x in batch.items():
            np.testing.assert_array_equal(x, whole[name][:, :L] if x.ndim > 1 else whole[name])
    held_out = build(corpus, "held_out", lengths=(8,))
    assert held_out.batch(held_out.steps_per_epoch - 1)["tokens_BL"].shape == (B, 16)


def test_a_layout_without_lengths_has_its_fingerprint_of_old(corpus):
    assert "lengths" not in build(corpus).fingerprint()
    assert build(corpus, lengths=(8,)).fingerprint()["lengths"] == [8]


def test_no_window_is_shorter_than_five_tokens_but_the_last():
    layout = layouts.configure("bptt", B=1, L=9, bptt=6, std=4.0)
    layout.shuffle, layout.share = True, 10_000
    assert np.diff(layout.draw_ends(0), prepend=0)[:-1].min() == 5


@pytest.mark.parametrize(("rows", "L"), [(1, 1000), (4, 20), (50, 16)])
def test_held_out_text_is_predicted_once_in_order(corpus, rows, L):
    layout = build(corpus, "held_out", B=rows, L=L)
    predicted = [[] for _ in range(rows)]
    for _, batch in read_batches(layout, threads=1, prefetch=1):
        for row in range(rows):
            predicted[row] += batch["next_BL"][row][batch["loss_mask_BL"][row]].tolist()
    text = text_of(corpus, corpus.splits["held_out"])
    np.testing.assert_array_equal(np.concatenate(predicted), text)


def test_steps_of_an_epoch_are_about_as_many_as_it_says(corpus):
    layout = build(corpus)
    steps = [len(batches) for batches in read_epochs(layout, 4)]
    assert np.mean(steps) == pytest.approx(layout.steps_per_epoch, rel=0.1)
    assert len(set(steps)) > 1
