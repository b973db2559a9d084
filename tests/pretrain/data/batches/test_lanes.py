"""Lanes: rows go on from batch to batch, both ways, and are the same whoever asks for them."""

from typing import Any

import numpy as np

from pretrain.data import batches as layouts
from pretrain.data.batches.loader import read_batches
from tests.support.batch_text import order_of, text_of

FIELDS: dict[str, Any] = {"B": 4, "L": 32, "reuse_len": 12}
SEP, CLS, EOD = 4, 3, 7


def build(corpus, split="train", **fields):
    return layouts.build("lanes", corpus, split=split, **FIELDS | fields)


def reused(layout, steps):
    """Joins the reused parts of each row over the steps: [B, steps * reuse_len]."""
    parts = [layout.batch(step)["tokens_BL"][:, : layout.reuse_len] for step in steps]
    return np.concatenate(parts, axis=1)


def find(part, whole):
    """Finds where `part` occurs in `whole`."""
    windows = np.lib.stride_tricks.sliding_window_view(whole, len(part))
    return np.flatnonzero((windows == part).all(1))


def segments(batch, row):
    """Returns the tokens of A and of B."""
    tokens, segment = batch["tokens_BL"][row], batch["segments_BL"][row]
    return tokens[segment == 0][FIELDS["reuse_len"] : -1], tokens[segment == 1][:-1]


def test_a_row_goes_on_where_it_stopped(corpus):
    layout = build(corpus, split="held_out")
    text = text_of(corpus, corpus.splits["held_out"])
    rows = reused(layout, range(layout.steps_per_epoch))
    for row in (0, 1):
        whole = np.tile(text if row == 0 else text[::-1], 2)
        np.testing.assert_array_equal(rows[row], whole[: rows.shape[1]])


def test_a_follows_the_reused_part_at_once(corpus):
    layout = build(corpus, seed=3)
    for step in range(20):
        now, later = layout.batch(step)["tokens_BL"], layout.batch(step + 1)["tokens_BL"]
        a_ends = (now == SEP).argmax(1)
        for row in range(layout.B):
            a = now[row, layout.reuse_len : a_ends[row]][: layout.reuse_len]
            np.testing.assert_array_equal(a, later[row, : len(a)])


def test_training_lanes_share_the_text_of_each_epoch_without_overlap(corpus):
    layout = build(corpus, seed=1)
    text = text_of(corpus, corpus.splits["train"])
    for epoch in (0, 1):
        steps = range(epoch * layout.steps_per_epoch, (epoch + 1) * layout.steps_per_epoch)
        rows = reused(layout, steps)
        for way in (0, 1):
            read = np.bincount(rows[way::2].ravel(), minlength=layout.corpus.manifest["V"])
            there = np.bincount(text, minlength=len(read))
            assert (read <= there).all()
            assert there.sum() - read.sum() < layout.reuse_len * layout.lanes + layout.reuse_len


def test_rows_say_which_way_they_read(corpus):
    assert build(corpus).batch(0)["backward_B"].tolist() == [False, True, False, True]
    assert "backward_B" not in build(corpus, bidirectional=False).batch(0)


def test_a_row_is_reused_a_sep_b_sep_cls(corpus):
    layout = build(corpus)
    for step in range(10):
        batch = layout.batch(step)
        assert {v.shape[0] for v in batch.values()} == {4}
        for tokens, segment in zip(batch["tokens_BL"], batch["segments_BL"], strict=True):
            first, second = np.flatnonzero(tokens == SEP)
            assert layout.reuse_len < first < second == layout.L - 2
            assert np.flatnonzero(tokens == CLS).tolist() == [layout.L - 1]
            expected = [0] * (first + 1) + [1] * (second - first) + [2]
            assert segment.tolist() == expected


def test_half_of_the_bs_follow_their_a(corpus):
    layout = build(corpus, L=64)
    follows = np.concatenate([layout.batch(step)["consecutive_B"] for step in range(200)])
    assert abs(follows.mean() - 0.5) < 0.06


def test_the_label_says_whether_b_follows_in_the_text(corpus):
    layout = build(corpus, bidirectional=False, L=60, B=4)
    order = np.tile(text_of(corpus, np.array(order_of(layout, 0))), 2)
    for step in range(10):
        batch = layout.batch(step)
        for row, follows in enumerate(batch["consecutive_B"]):
            begin = (row * layout.steps_per_epoch + step) * layout.reuse_len + layout.reuse_len
            a, b = segments(batch, row)
            gap = find(b, order[begin + len(a) :][: len(b) + layout.room])
            np.testing.assert_array_equal(order[begin : begin + len(a)], a)
            assert bool(len(gap)) == bool(follows)


def test_a_random_b_begins_a_sentence_anywhere_in_the_split(corpus):
    layout = build(corpus, bidirectional=False)
    text = text_of(corpus, np.array(order_of(layout, 0)))
    begins = []
    for step in range(60):
        batch = layout.batch(step)
        for row in np.flatnonzero(batch["consecutive_B"] == 0):
            places = find(segments(batch, row)[1], text)
            begins += places.tolist() if len(places) == 1 else []
    parts = np.histogram(begins, bins=4, range=(0, len(text)))[0]
    assert len(begins) > 50
    assert parts.min() > len(begins) / 12
    assert all(begin == 0 or text[begin - 1] in (EOD, 9) for begin in begins)  # 9 is "."


def test_a_backward_b_begins_with_the_end_of_a_sentence(corpus):
    layout = build(corpus)
    for step in range(20):
        batch = layout.batch(step)
        for row in (1, 3):
            assert segments(batch, row)[1][0] in (EOD, 9)


def test_starts_mark_documents_in_readingorder_of(corpus):
    layout = build(corpus, bidirectional=True, seed=5)
    for step in range(1, 40):
        batch = layout.batch(step)
        text_BL = batch["segments_BL"] == 0
        text_BL[:, 0] = False  # what precedes it is in another batch
        opens_BL = np.roll(batch["tokens_BL"] == EOD, 1, axis=1)
        opens_BL[1::2] = (batch["tokens_BL"] == EOD)[1::2]
        opens_BL &= text_BL & (batch["tokens_BL"] != SEP)
        np.testing.assert_array_equal(batch["document_start_BL"] & text_BL, opens_BL)


def test_a_b_from_elsewhere_has_no_starts(corpus):
    layout = build(corpus, B=8, L=48)
    seen = 0
    for step in range(60):
        batch = layout.batch(step)
        b_BL = (batch["segments_BL"] == 1) & (batch["consecutive_B"] == 0)[:, None]
        seen += (b_BL & (batch["tokens_BL"] == EOD)).sum()
        assert not (batch["document_start_BL"] & b_BL).any()
    assert seen > 0


def test_every_row_starts_anew_with_an_epoch(corpus):
    layout = build(corpus)
    for epoch in (0, 1, 2):
        step = epoch * layout.steps_per_epoch
        assert layout.batch(step)["document_start_BL"][:, 0].all()
        assert not layout.batch(step + 1)["document_start_BL"][:, 0].all()


def test_evaluation_reads_every_window_once(corpus):
    layout = build(corpus, split="held_out", B=8, L=24, reuse_len=7)
    text = text_of(corpus, corpus.splits["held_out"])
    windows = -(-len(text) // 7)
    assert windows % layout.lanes, "this test wants filler"
    batches = [batch for _, batch in read_batches(layout)]
    weights = np.stack([batch["weight_B"] for batch in batches])
    assert weights.sum() == 2 * windows
    for way, whole in ((0, text), (1, text[::-1])):
        lanes_read = [
            np.concatenate([b["tokens_BL"][row, :7] for b in batches if b["weight_B"][row]])
            for row in range(way, 8, 2)
            if weights[:, row].any()
        ]
        read = np.concatenate(lanes_read)
        np.testing.assert_array_equal(read[: len(whole)], whole)
        assert len(read) - len(whole) < 7


def test_the_smallest_rows_work(corpus):
    batch = build(corpus, L=6, reuse_len=1, B=1, bidirectional=False).batch(0)
    assert batch["segments_BL"].tolist() == [[0, 0, 0, 1, 1, 2]]
