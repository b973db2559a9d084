"""Windows: every token of the text is predicted from the one before it, once, whatever the rows."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pretrain.data import batches as layouts
from pretrain.runtime.errors import UserError
from tests.support.batch_text import read_epoch, text_of

FIELDS: dict[str, Any] = {"B": 4, "L": 16}
CLS, SEP, PAD, EOD = 3, 4, 5, 7


def build(corpus, split="train", **fields):
    return layouts.build("windows", corpus, split=split, **FIELDS | fields)


def invented(sizes: list[int], **special: int) -> SimpleNamespace:
    """Builds a corpus of documents of these sizes, each token another, with their <eod>."""
    ends = np.cumsum(sizes)
    return SimpleNamespace(
        tokens=np.arange(ends[-1], dtype=np.uint16),
        documents=np.append(0, ends),
        words=np.arange(1, len(sizes) + 1) * 7,
        bytes=np.arange(1, len(sizes) + 1) * 31,
        splits=dict.fromkeys(("train", "all"), np.arange(len(sizes))),
        tokenizer=SimpleNamespace(
            special={"eod": 0} | special, word_start_V=np.ones(ends[-1] + 1, bool)
        ),
        fingerprint="invented",
    )


@pytest.mark.parametrize("overlap", [0, 1, 5, 15])
@pytest.mark.parametrize("split", ["held_out", "all"])
def test_evaluation_predicts_every_token_once_in_order_from_the_one_before(corpus, split, overlap):
    text = text_of(corpus, corpus.splits[split])
    rows = read_epoch(build(corpus, split=split, overlap=overlap))
    predicted = rows["loss_mask_BL"]
    np.testing.assert_array_equal(rows["next_BL"][predicted], text)
    before = np.append(corpus.tokenizer.special["eod"], text[:-1])
    np.testing.assert_array_equal(rows["tokens_BL"][predicted], before)
    assert (rows["valid_BL"] | ~predicted).all()


@pytest.mark.parametrize("size", [*range(1, 14), 64, 65, 66])
@pytest.mark.parametrize("fields", [{}, {"overlap": 3}, {"framed": True}])
def test_a_text_of_any_size_is_read_to_its_end_and_no_further(size, fields):
    corpus = invented([size], cls=70, sep=71, pad=72)
    corpus.tokenizer.word_start_V = np.ones(73, bool)
    layout = build(corpus, "all", B=3, L=6, **fields)
    rows = read_epoch(layout)
    text_BL = rows["loss_mask_BL"] if "loss_mask_BL" in rows else rows["tokens_BL"] < 70
    read_BL = rows["next_BL"] if "next_BL" in rows else rows["tokens_BL"]
    assert read_BL[text_BL].tolist() == list(range(size))
    assert rows["weight_B"].sum() == layout.windows
    assert (text_BL.any(1) == (rows["weight_B"] == 1)).all()
    assert (rows["tokens_BL"][~rows["valid_BL"]] == 72).all()


def test_a_row_begins_with_the_context_that_the_row_before_predicted(corpus):
    rows = read_epoch(build(corpus, split="held_out", overlap=6))
    real = int(rows["weight_B"].sum())
    for row in range(1, real):
        np.testing.assert_array_equal(rows["next_BL"][row, :6], rows["next_BL"][row - 1, 10:])
        assert not rows["loss_mask_BL"][row, :6].any()
        assert rows["valid_BL"][row, :6].all()
    assert rows["loss_mask_BL"][0].all()


@pytest.mark.parametrize("overlap", [0, 6])
def test_training_predicts_the_text_of_each_epoch_but_for_what_fills_no_batch(corpus, overlap):
    layout = build(corpus, overlap=overlap, seed=1)
    text = text_of(corpus, corpus.splits["train"])
    for epoch in (0, 1):
        rows = read_epoch(layout, epoch)
        new = np.bincount(rows["next_BL"][rows["loss_mask_BL"]], minlength=corpus.tokenizer.V)
        there = np.bincount(text, minlength=len(new))
        assert (new <= there).all()
        assert there.sum() - new.sum() < (layout.B + 1) * layout.stride


def test_training_wastes_nothing_on_padding(corpus):
    rows, framed = (read_epoch(build(corpus, framed=is_framed)) for is_framed in (False, True))
    for name in ("valid_BL", "weight_B"):
        assert rows[name].all()
        assert framed[name].all()
    assert rows["loss_mask_BL"].all()


def test_training_rows_are_parts_of_documents_joined_at_their_ends():
    corpus = invented([5, 1, 30, 12, 7, 40])
    begins, ends = corpus.documents[:-1], corpus.documents[1:] - 1
    for split, epoch in (("train", 0), ("train", 1), ("train", 2), ("all", 0)):
        rows = read_epoch(build(corpus, split, L=8, seed=2), epoch)
        tokens, following, valid = rows["tokens_BL"], rows["next_BL"], rows["valid_BL"]
        goes_on = ~rows["document_start_BL"] & valid
        np.testing.assert_array_equal((following[:, :-1] == tokens[:, 1:])[valid[:, 1:]], True)
        np.testing.assert_array_equal(goes_on, ~np.isin(tokens, ends) & valid)
        np.testing.assert_array_equal(goes_on, ~np.isin(following, begins) & valid)
        np.testing.assert_array_equal(following[goes_on], tokens[goes_on] + 1)


def firsts(layout, epoch: int) -> np.ndarray:
    """Returns the first token of each window in the order they are read."""
    return read_epoch(layout, epoch)["next_BL"][:, 0]


def test_windows_of_a_batch_do_not_follow_each_other():
    first = firsts(build(invented([4000])), 0)
    assert (np.diff(first) == 16).mean() < 0.03
    assert len(set(first)) == len(first)


def test_windows_of_one_huge_document_are_cut_elsewhere_each_epoch():
    layout = build(invented([1000]))
    assert len({firsts(layout, epoch).min() for epoch in range(6)}) > 3


def test_words_and_bytes_of_a_row_are_its_tokens_shares_of_their_documents():
    corpus = invented([5, 1, 30, 12, 7, 40])
    document = np.repeat(np.arange(6), np.diff(corpus.documents))
    for layout in (build(corpus, L=8), build(corpus, "all", L=8, overlap=3)):
        rows = read_epoch(layout)
        assert rows["words_B"].dtype == rows["bytes_B"].dtype == np.float32
        for number in range(len(rows["next_BL"])):
            documents = document[rows["next_BL"][number][rows["loss_mask_BL"][number]]]
            words = sum(corpus.words[d] / (document == d).sum() for d in documents)
            sizes = sum(corpus.bytes[d] / (document == d).sum() for d in documents)
            assert rows["words_B"][number] == pytest.approx(words, rel=1e-6)
            assert rows["bytes_B"][number] == pytest.approx(sizes, rel=1e-6)


def test_a_framed_row_is_cls_text_sep(corpus):
    text = text_of(corpus, corpus.splits["held_out"])
    rows = read_epoch(build(corpus, split="held_out", framed=True))
    assert {"next_BL", "loss_mask_BL", "words_B", "bytes_B"}.isdisjoint(rows)
    valid, tokens = rows["valid_BL"], rows["tokens_BL"]
    real = int(rows["weight_B"].sum())
    assert (tokens[:real, 0] == CLS).all()
    last = valid[:real].sum(1) - 1
    assert (tokens[np.arange(real), last] == SEP).all()
    assert (last[:-1] == 15).all()
    inside = valid & ~np.isin(tokens, (CLS, SEP))
    np.testing.assert_array_equal(tokens[inside], text)
    assert (tokens[~valid] == PAD).all()


def test_a_framed_row_says_where_its_documents_begin():
    corpus = invented([5, 1, 30, 12, 7, 40], cls=90, sep=91)
    corpus.tokenizer.word_start_V = np.ones(96, bool)
    for epoch in range(3):
        rows = read_epoch(build(corpus, L=8, framed=True, B=2), epoch)
        begins = np.isin(rows["tokens_BL"], corpus.documents[:-1])
        np.testing.assert_array_equal(rows["document_start_BL"], begins)


def test_held_out_text_is_never_trained_on():
    corpus = invented([20] * 10)
    corpus.splits["train"], held_out = np.arange(9), np.arange(180, 200)
    for epoch in range(3):
        assert not np.isin(read_epoch(build(corpus), epoch)["next_BL"], held_out).any()


def test_frames_need_their_tokens():
    with pytest.raises(UserError, match="'windows' needs <cls> and <sep>"):
        build(invented([100]), framed=True)
