"""The rows that pairs draw: the original's, every sentence once, half of the Bs in their place."""

import numpy as np
import pytest

from pretrain.data.batches import pair_sampling
from pretrain.data.batches.pair_sampling import truncate_pair, truncate_pairs
from tests.support.pair_corpora import (
    bind_pairs,
    build,
    build_corpus,
    sample,
    sentences_of,
    truncate_plainly,
)


def read(instances):
    """(begin, end) of every A and of every B that follows its A, in order."""
    a_begin, a, b_begin, b, follows = instances
    begin = np.concatenate([a_begin, b_begin[follows]])
    end = np.concatenate([a_begin + a, (b_begin + b)[follows]])
    return sorted(zip(begin.tolist(), end.tolist(), strict=True))


# By BERT's own loop, a sentence at a time: where A and B begin, their tokens, does B follow.
LOOPED = {
    False: "0 7 19 2 0, 10 5 17 2 0, 17 4 21 8 1, 7 2 23 6 0, 15 1 7 2 0",
    True: "0 7 19 2 0, 10 5 17 2 0, 17 4 10 5 0, 7 2 19 10 0, 15 1 23 6 0, 21 2 23 6 1",
}


@pytest.mark.parametrize("faithful", LOOPED)
def test_rows_are_those_of_the_original_loop(faithful):
    corpus = build_corpus([3, 4, 2], [5, 1], [2, 2, 2, 6])
    layout = bind_pairs(corpus, L=12, faithful=faithful, seed=2, short_seq_prob=0.3)
    rows = [" ".join(str(int(x)) for x in row) for row in zip(*sample(layout, 1), strict=True)]
    assert ", ".join(rows) == LOOPED[faithful]


def test_what_a_row_has_no_room_for_is_dropped_from_the_longer_segment(corpus):
    layout = build(corpus, L=64)
    whole = sample(layout)
    cut = truncate_pairs(np.random.default_rng(1), whole, layout.room)
    np.testing.assert_array_equal(cut.consecutive, whole.consecutive)
    kept = [
        truncate_plainly(a, b, 61) for a, b in zip(whole.a.tolist(), whole.b.tolist(), strict=True)
    ]
    assert list(zip(cut.a.tolist(), cut.b.tolist(), strict=True)) == kept
    front = np.concatenate([cut.a_begin - whole.a_begin, cut.b_begin - whole.b_begin])
    dropped = np.concatenate([whole.a - cut.a, whole.b - cut.b])
    assert (front >= 0).all()
    assert (front <= dropped).all()
    assert dropped.max() > 20
    assert abs(front.sum() / dropped.sum() - 0.5) < 0.02  # each from either end
    assert set(front[dropped == 2].tolist()) == {0, 1, 2}  # not all of a row's from one end


@pytest.mark.parametrize("size", [2, 5, 17, 18])
def test_truncation_takes_from_the_longer_segment_one_token_at_a_time(size):
    for a in range(1, 2 * size):
        for b in range(max(1, size - a), 2 * size):
            cut = truncate_pair(np.array(a), np.array(b), size)
            assert tuple(map(int, cut)) == truncate_plainly(a, b, size)


@pytest.mark.parametrize("longest", [3, 1024])
@pytest.mark.parametrize("next_sentence", [True, False])
def test_an_epoch_reads_every_sentence_once_as_a_or_as_what_follows_it(
    corpus, next_sentence, longest, monkeypatch
):
    monkeypatch.setattr(pair_sampling, "MAX_SENTENCES", longest)
    layout = build(corpus, next_sentence=next_sentence)
    sentences = {s for each in sentences_of(corpus, corpus.splits["train"]) for s in each}
    for epoch in (0, 3):
        parts = read(sample(layout, epoch))
        covered = np.concatenate([np.arange(*part) for part in parts])
        there = np.concatenate([np.arange(*sentence) for sentence in sorted(sentences)])
        np.testing.assert_array_equal(covered, there)
        assert {begin for begin, _ in parts} <= {begin for begin, _ in sentences}


@pytest.mark.parametrize("longest", [3, 1024])
def test_a_b_follows_at_once_or_is_of_another_document(corpus, longest, monkeypatch):
    monkeypatch.setattr(pair_sampling, "MAX_SENTENCES", longest)
    rows = sample(build(corpus, L=128))
    a_document = np.searchsorted(corpus.documents, rows.a_begin, side="right")
    b_document = np.searchsorted(corpus.documents, rows.b_begin, side="right")
    np.testing.assert_array_equal(a_document == b_document, rows.consecutive)
    np.testing.assert_array_equal(rows.a_begin + rows.a == rows.b_begin, rows.consecutive)
    last = np.searchsorted(corpus.documents, rows.b_begin + rows.b - 1, side="right")
    np.testing.assert_array_equal(last, b_document)
    assert min(rows.a.min(), rows.b.min()) > 0


def test_half_of_the_bs_follow_their_a(corpus):
    for L in (64, 96, 256):
        shares = [build(corpus, L=L).epoch(epoch).pairs.consecutive.mean() for epoch in (0, 1)]
        assert shares == pytest.approx([0.5, 0.5], abs=0.02)


def test_the_original_coin_makes_fewer_than_half_of_the_bs_follow(corpus):
    rows = [build(corpus, faithful=True).epoch(epoch).pairs for epoch in range(4)]
    assert np.mean([each.consecutive.mean() for each in rows]) < 0.42


@pytest.mark.parametrize("next_sentence", [True, False])
def test_rows_are_full_but_for_the_short_ones(next_sentence):
    corpus = build_corpus(*[[1] * 4000] * 8)
    for short in (0.0, 0.25, 1.0):
        layout = bind_pairs(corpus, L=23, short_seq_prob=short, next_sentence=next_sentence)
        rows = layout.epoch(0).pairs
        below = (rows.a + rows.b < layout.room).mean()
        # a length is drawn from 2 to room, and documents end
        assert below == pytest.approx(short * (1 - 1 / (layout.room - 1)), abs=0.04)
        assert (rows.a + rows.b).max() == layout.room


def test_a_is_whole_sentences_of_one_document_when_alone(corpus):
    layout = build(corpus, next_sentence=False, L=128)
    rows = layout.epoch(0).pairs
    sentences = [s for each in sentences_of(corpus, corpus.splits["train"]) for s in each]
    fits = rows.a < layout.room
    assert fits.mean() > 0.9
    begins, ends = (set(side) for side in zip(*sentences, strict=True))
    assert set(rows.a_begin.tolist()) <= begins
    assert set((rows.a_begin + rows.a)[fits].tolist()) <= ends
    following = dict(sentences)
    for begin, end in zip(rows.a_begin.tolist(), (rows.a_begin + rows.a).tolist(), strict=True):
        assert end not in following or following[end] - begin > 2


def test_of_a_sentence_longer_than_a_row_a_part_is_seen():
    for next_sentence in (True, False):
        layout = bind_pairs(
            build_corpus([500], [3, 400], [7]),
            L=20,
            next_sentence=next_sentence,
            short_seq_prob=0.0,
        )
        rows = layout.epoch(0).pairs
        assert (rows.a + rows.b).max() == layout.room
        assert rows.a_begin[(rows.a_begin > 0) & (rows.a_begin < 500)].size == 1


def test_a_document_that_just_fills_a_row_is_one_row():
    layout = bind_pairs(
        build_corpus([10, 8], [10, 8]), L=20, next_sentence=False, short_seq_prob=0.0
    )
    assert layout.epoch(0).pairs.a.tolist() == [18, 18]


def test_documents_of_nothing_are_passed_over():
    corpus = build_corpus([5, 6], [0], [4, 3])
    for next_sentence in (True, False):
        rows = bind_pairs(corpus, L=30, next_sentence=next_sentence).epoch(0).pairs
        assert (rows.a > 0).all()
        assert ((rows.b > 0) == next_sentence).all()
