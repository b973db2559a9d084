"""Windows: every token of the text is predicted from the one before it, once, whatever the rows."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pretrain.data import batches as layouts
from pretrain.runtime.errors import UserError
from tests.support import corpora

FIELDS: dict[str, Any] = {"B": 4, "L": 16}
CLS, SEP, PAD, EOD = 3, 4, 5, 7


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return corpora.make(tmp_path_factory.mktemp("windows"), held_out=0.2)


def build(corpus, split="train", **fields):
    return layouts.build("windows", corpus, split=split, **FIELDS | fields)


def invented(sizes: list[int], **special: int) -> SimpleNamespace:
    """A corpus of documents of these sizes, each token another, with their <eod>."""
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


def read(layout, epoch: int = 0) -> dict[str, np.ndarray]:
    """All batches of an epoch, one under the other."""
    steps = range(epoch * layout.steps_per_epoch, (epoch + 1) * layout.steps_per_epoch)
    batches = [layout.batch(step) for step in steps]
    return {key: np.concatenate([batch[key] for batch in batches]) for key in batches[0]}


def text_of(corpus, documents) -> np.ndarray:
    spans = zip(corpus.documents[documents], corpus.documents[documents + 1], strict=True)
    return np.concatenate([corpus.tokens[i:j] for i, j in spans]).astype(np.int32)


@pytest.mark.parametrize("overlap", [0, 1, 5, 15])
@pytest.mark.parametrize("split", ["held_out", "all"])
def test_evaluation_predicts_every_token_once_in_order_from_the_one_before(corpus, split, overlap):
    text = text_of(corpus, corpus.splits[split])
    rows = read(build(corpus, split=split, overlap=overlap))
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
    rows = read(layout)
    text_BL = rows["loss_mask_BL"] if "loss_mask_BL" in rows else rows["tokens_BL"] < 70
    read_BL = rows["next_BL"] if "next_BL" in rows else rows["tokens_BL"]
    assert read_BL[text_BL].tolist() == list(range(size))
    assert rows["weight_B"].sum() == layout.windows
    assert (text_BL.any(1) == (rows["weight_B"] == 1)).all()
    assert (rows["tokens_BL"][~rows["valid_BL"]] == 72).all()


def test_a_row_begins_with_the_context_that_the_row_before_predicted(corpus):
    rows = read(build(corpus, split="held_out", overlap=6))
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
        rows = read(layout, epoch)
        new = np.bincount(rows["next_BL"][rows["loss_mask_BL"]], minlength=corpus.tokenizer.V)
        there = np.bincount(text, minlength=len(new))
        assert (new <= there).all()
        assert there.sum() - new.sum() < (layout.B + 1) * layout.stride


def test_training_wastes_nothing_on_padding(corpus):
    rows = read(build(corpus))
    assert rows["valid_BL"].all()
    assert rows["loss_mask_BL"].all()
    assert rows["weight_B"].all()
    framed = read(build(corpus, framed=True))
    assert framed["valid_BL"].all()
    assert framed["weight_B"].all()


def test_training_rows_are_parts_of_documents_joined_at_their_ends():
    corpus = invented([5, 1, 30, 12, 7, 40])
    begins, ends = corpus.documents[:-1], corpus.documents[1:] - 1
    for epoch in range(4):
        rows = read(build(corpus, L=8, seed=2), epoch)
        tokens, following = rows["tokens_BL"], rows["next_BL"]
        np.testing.assert_array_equal(following[:, :-1], tokens[:, 1:])
        np.testing.assert_array_equal(rows["document_start_BL"], np.isin(tokens, ends))
        np.testing.assert_array_equal(rows["document_start_BL"], np.isin(following, begins))
        goes_on = ~rows["document_start_BL"]
        np.testing.assert_array_equal(following[goes_on], tokens[goes_on] + 1)


def test_documents_begin_after_an_end(corpus):
    for split in ("train", "held_out"):
        rows = read(build(corpus, split=split))
        after_BL = (rows["tokens_BL"] == EOD) & rows["valid_BL"]
        np.testing.assert_array_equal(rows["document_start_BL"], after_BL)
        assert after_BL.any()


def test_words_start_where_the_tokenizer_says(corpus):
    batch = build(corpus).batch(3)
    expected = corpus.tokenizer.word_start_V[batch["tokens_BL"]]
    np.testing.assert_array_equal(batch["word_starts_BL"], expected)


def firsts(layout, epoch: int) -> np.ndarray:
    """The first token of each window in the order they are read; tells them apart if invented."""
    return read(layout, epoch)["next_BL"][:, 0]


def test_windows_come_in_another_order_each_epoch_and_for_each_seed():
    corpus = invented([1000])
    orders = {tuple(firsts(build(corpus, seed=s), e)) for s in (0, 1) for e in (0, 1, 2)}
    assert len(orders) == 6


def test_windows_of_a_batch_do_not_follow_each_other():
    first = firsts(build(invented([4000])), 0)
    assert (np.diff(first) == 16).mean() < 0.03
    assert len(set(first)) == len(first)


def test_windows_of_one_huge_document_are_cut_elsewhere_each_epoch():
    layout = build(invented([1000]))
    assert len({firsts(layout, epoch).min() for epoch in range(6)}) > 3


def test_words_and_bytes_sum_to_those_of_the_documents(corpus):
    for split in ("held_out", "all"):
        for fields in ({}, {"overlap": 7}, {"L": 50}):
            rows = read(build(corpus, split=split, **fields))
            for key, whole in (("words_B", corpus.words), ("bytes_B", corpus.bytes)):
                assert rows[key].dtype == np.float32
                total = whole[corpus.splits[split]].sum()
                assert rows[key].sum(dtype=np.float64) == pytest.approx(total, rel=1e-5)


def test_words_and_bytes_of_a_row_are_its_tokens_shares_of_their_documents():
    corpus = invented([5, 1, 30, 12, 7, 40])
    document = np.repeat(np.arange(6), np.diff(corpus.documents))
    for layout in (build(corpus, L=8), build(corpus, "all", L=8, overlap=3)):
        rows = read(layout)
        for number in range(len(rows["next_BL"])):
            own = document[rows["next_BL"][number][rows["loss_mask_BL"][number]]]
            words = sum(corpus.words[d] / (document == d).sum() for d in own)
            sizes = sum(corpus.bytes[d] / (document == d).sum() for d in own)
            assert rows["words_B"][number] == pytest.approx(words, rel=1e-6)
            assert rows["bytes_B"][number] == pytest.approx(sizes, rel=1e-6)


def test_a_framed_row_is_cls_text_sep(corpus):
    text = text_of(corpus, corpus.splits["held_out"])
    rows = read(build(corpus, split="held_out", framed=True))
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
        rows = read(build(corpus, L=8, framed=True, B=2), epoch)
        begins = np.isin(rows["tokens_BL"], corpus.documents[:-1])
        np.testing.assert_array_equal(rows["document_start_BL"], begins)


def test_held_out_text_is_never_trained_on():
    corpus = invented([20] * 10)
    corpus.splits["train"], held_out = np.arange(9), np.arange(180, 200)
    for epoch in range(3):
        assert not np.isin(read(build(corpus), epoch)["next_BL"], held_out).any()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"B": 0}, "B=0, L=16, overlap=0, framed=False: a batch needs a row"),
        ({"overlap": 16}, "L=16, overlap=16, framed=False: .* one token besides its overlap"),
        ({"overlap": -1}, "overlap=-1"),
        ({"L": 2, "framed": True}, "L=2, overlap=0, framed=True: .* or its frame"),
        ({"framed": True, "overlap": 2}, "overlap=2: framed rows have none"),
        ({"B": 4000}, r"training split has \d+ windows of 16 tokens but batch has 4000 rows"),
        ({"L": 10**6}, "training split has 0 windows of 1000000 tokens"),
    ],
)
def test_what_does_not_fit_is_refused_at_the_door(corpus, fields, message):
    with pytest.raises(UserError, match=message):
        build(corpus, **fields)


def test_frames_need_their_tokens():
    with pytest.raises(
        UserError, match="framed=True, but this vocabulary has no <cls> and no <sep>"
    ):
        build(invented([100]), framed=True)
