"""Pairs: <cls> A <sep> B <sep> and padding, the same rows whoever asks for them."""

import numpy as np
import pytest

from pretrain.runtime.errors import UserError
from tests.support.batch_text import read_epoch
from tests.support.pair_corpora import CLS, EOD, PAD, SEP, bind_pairs, build, build_corpus


def test_a_row_is_cls_a_sep_b_sep_and_padding(corpus):
    layout = build(corpus, short_seq_prob=0.5)
    seen = set()
    for step in range(10):
        rows = layout.epoch(0).pairs.take(slice(step * 8, step * 8 + 8))
        batch = layout.batch(step)
        for row, (a_begin, a, b_begin, b, follows) in enumerate(zip(*rows, strict=True)):
            a_part, b_part = corpus.tokens[a_begin:][:a], corpus.tokens[b_begin:][:b]
            padding = layout.L - a - b - 3
            expected = [CLS, *a_part, SEP, *b_part, SEP, *[PAD] * padding]
            assert batch["tokens_BL"][row].tolist() == expected
            segments = [0] * (a + 2) + [1] * (b + 1) + [0] * padding
            assert batch["segments_BL"][row].tolist() == segments
            assert batch["valid_BL"][row].tolist() == [n < a + b + 3 for n in range(layout.L)]
            assert batch["consecutive_B"][row] == follows
            seen.add((bool(padding), bool(follows)))
    assert len(seen) == 4


def test_a_row_without_b_is_cls_a_sep_and_padding(corpus):
    layout = build(corpus, next_sentence=False)
    batch = layout.batch(1)
    assert set(batch) == {"tokens_BL", "segments_BL", "valid_BL", "word_starts_BL", "weight_B"}
    assert not batch["segments_BL"].any()
    for row, (begin, a) in enumerate(
        zip(*(f[8:16] for f in layout.epoch(0).pairs[:2]), strict=True)
    ):
        expected = [CLS, *corpus.tokens[begin : begin + a], SEP, *[PAD] * (layout.L - a - 2)]
        assert batch["tokens_BL"][row].tolist() == expected
        assert batch["valid_BL"][row].sum() == a + 2


def test_the_end_of_a_document_is_in_no_row():
    corpus = build_corpus([5, 0], [4, 3], [9])  # the first one ends with a sentence of nothing
    layout = bind_pairs(corpus, B=3, L=40)
    for step in range(20):
        assert not (layout.batch(step)["tokens_BL"] == EOD).any()


def test_every_row_of_an_epoch_comes_once_but_for_a_few(corpus):
    layout = build(corpus, B=2)
    counts = [len(layout.epoch(epoch).pairs.a) for epoch in range(6)]
    assert layout.steps_per_epoch == counts[0] // 2
    size = layout.steps_per_epoch * 2
    assert min(counts) + 1 < size < max(counts), "this test wants fewer rows than steps, and more"
    for epoch, count in enumerate(counts):
        batches = read_epoch(layout, epoch)
        assert batches["weight_B"].all()
        unique, times = np.unique(batches["tokens_BL"], axis=0, return_counts=True)
        assert len(unique) == min(count, size)
        assert times.max() == (2 if count < size else 1)


def test_epochs_and_seeds_draw_other_rows_in_another_order(corpus):
    layouts = [build(corpus, seed=seed) for seed in (0, 1)]
    drawn = [layout.epoch(epoch).pairs for layout in layouts for epoch in (0, 1)]
    assert len({each.a_begin.tobytes() for each in drawn}) == 4
    assert len({np.sort(each.a_begin).tobytes() for each in drawn}) == 4
    for each in drawn:
        assert np.corrcoef(each.a_begin, np.arange(len(each.a)))[0, 1] < 0.25


@pytest.mark.parametrize("next_sentence", [True, False])
def test_evaluation_reads_every_row_once_in_order(corpus, next_sentence):
    layout = build(corpus, split="held_out", B=32, next_sentence=next_sentence)
    rows = layout.epoch(0).pairs
    assert len(rows.a) % 32, "this test wants filler"
    assert (np.diff(rows.a_begin) > 0).all()
    whole = read_epoch(layout)
    assert whole["weight_B"].tolist() == [1] * len(rows.a) + [0] * (-len(rows.a) % 32)
    text, filler = whole["weight_B"] == 1, whole["weight_B"] == 0
    firsts = [tokens[1:6].tolist() for tokens in whole["tokens_BL"][text]]
    for first, begin, a in zip(firsts, rows.a_begin, rows.a, strict=True):
        assert first[:a] == corpus.tokens[begin : begin + min(a, 5)].tolist()
    assert (whole["tokens_BL"][filler] == PAD).all()
    assert not any(whole[key][filler].any() for key in whole if key.endswith(("valid_BL", "_B")))


def test_too_few_documents_with_text_are_refused():
    corpus = build_corpus([5, 5, 5, 5], [0])
    with pytest.raises(UserError, match="training split has 1 documents with text but"):
        bind_pairs(corpus, L=12)
    assert bind_pairs(corpus, L=12, next_sentence=False).batch(0)["weight_B"].all()
    with pytest.raises(UserError, match=r"held-out split has 0 documents.*need 1 or more"):
        bind_pairs(build_corpus([0], [0]), L=12, next_sentence=False, shuffle=False)


def test_a_vocabulary_without_special_tokens_is_refused():
    corpus = build_corpus([5, 5], [5, 5])
    del corpus.tokenizer.special["sep"], corpus.tokenizer.special["pad"]
    with pytest.raises(UserError, match="'pairs' needs <sep> and <pad>, but this"):
        bind_pairs(corpus, L=12)


def test_the_smallest_rows_work():
    for step in range(4):
        batch = bind_pairs(build_corpus([5, 5], [5, 5]), L=5).batch(step)
        assert batch["segments_BL"].tolist() == [[0, 0, 0, 1, 1]]
        assert batch["valid_BL"].all()


def split_packed(batch):
    """Lists the examples of packed rows: tokens, segments, starts of words, does B follow."""
    names, examples = ("tokens_BL", "segments_BL", "word_starts_BL"), []
    for row, starts in enumerate(batch["starts_BO"]):
        length = batch["valid_BL"][row].sum()
        ends = np.minimum([*starts[1:], length], length)
        for n, (begin, end) in enumerate(zip(starts, ends, strict=True)):
            if begin < length:
                fields = [tuple(batch[name][row, begin:end].tolist()) for name in names]
                examples.append((*fields, int(batch["consecutive_BO"][row, n])))
    return examples


def test_packed_and_unpacked_epochs_have_each_example_once(corpus):
    fields = dict(split="all", short_seq_prob=1.0, L=256)
    plain, packed = (read_epoch(build(corpus, pack=n, **fields)) for n in (0, 4))
    plain["starts_BO"] = np.where(plain["weight_B"] > 0, 0, 256)[:, None]
    plain["consecutive_BO"] = plain["consecutive_B"][:, None]
    one, other = split_packed(plain), split_packed(packed)
    assert sorted(one) == sorted(other)
    assert packed["weight_B"].sum() < 0.9 * plain["weight_B"].sum()
    assert (packed["starts_BO"] < 256).sum(1).max() > 2


def test_training_reads_no_packed_example_twice_in_an_epoch(corpus):
    layout = build(corpus, B=2, pack=4, short_seq_prob=0.6)
    rows = layout.epoch(0).rows_RO
    assert layout.steps_per_epoch == len(rows) // 2
    examples = split_packed(read_epoch(layout))
    assert len(examples) == (rows[: layout.steps_per_epoch * 2] >= 0).sum()
    assert len(set(examples)) == len(examples)
