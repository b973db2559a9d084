"""Windows (GPT, RoBERTa): documents joined end to end, cut into rows that are read in any order."""

import functools
from typing import Any, NamedTuple

import numpy as np

from pretrain.data.batches import Batch
from pretrain.data.batches.document_stream import (
    Stream,
    check_windows,
    draws,
    fingerprint,
    shuffled,
)
from pretrain.data.corpus.format import Corpus
from pretrain.runtime.errors import UserError

DOCUMENTS, WINDOWS, OFFSET = range(3)  # what randomness is for
FORWARDS = np.zeros((1, 1), bool)


class Epoch(NamedTuple):
    """The text of an epoch, and the order of its windows."""

    stream: Stream
    order: np.ndarray  # [windows]
    offset: int  # where in the stream window 0 begins
    words: np.ndarray  # [documents of the stream], per token
    bytes: np.ndarray


class Windows:
    """Rows of L consecutive tokens, each told from the one before it.

    The text of an epoch is its documents, each with its <eod>, joined in an order drawn anew from
    (seed, epoch), cut into windows at an offset and read in an order of windows drawn likewise.
    Nothing is padded: a window may run over the end of the text into its beginning, and windows
    that do not fill a batch wait for the next epoch's orders.  An epoch's order takes 8 bytes of
    memory per window.  Without `shuffle` every token is predicted once, in the corpus's order; the
    last row is padded, and rows that have no text weigh 0.

    A batch holds `next_BL` int32, what is to be predicted, and `tokens_BL` int32, the token before
    each of them (the text's first has an <eod> before it); `document_start_BL` (next_BL begins a
    document), `word_starts_BL` (tokens_BL begins a word), `valid_BL` (False beyond the text),
    `loss_mask_BL` bool; `weight_B`, `words_B`, `bytes_B` float32: the last two are the original
    words and bytes of what is predicted, a document's spread evenly over its tokens.

    With `overlap`, a row begins with so many tokens that the row before it predicts (the text's
    first row without `shuffle` has no such row before it, and predicts them all).

    With `framed`, a row is <cls>, L - 2 consecutive tokens, <sep> (Liu et al., 2019, arXiv
    1907.11692: FULL-SENTENCES), and a batch has no `next_BL`, `loss_mask_BL`, `words_B`, `bytes_B`;
    `document_start_BL` is where tokens_BL begins a document.

    Raises:
        UserError: the training text has fewer windows than the batch has rows, there is no text
            at all, or the fields do not fit.
    """

    def __init__(
        self,
        corpus: Corpus,
        documents: np.ndarray,
        *,
        B: int,
        L: int,
        framed: bool = False,
        overlap: int = 0,
        seed: int = 0,
        shuffle: bool = True,
    ):
        self.corpus, self.documents, self.shuffle = corpus, documents, shuffle
        self.B, self.L, self.framed, self.overlap, self.seed = B, L, framed, overlap, seed
        self.stride = L - 2 if framed else L - overlap
        self._check_fields()
        size = int((corpus.documents[documents + 1] - corpus.documents[documents]).sum())
        self.end = np.inf if shuffle else size  # training goes round and round
        self.windows = size // self.stride if shuffle else self._whole(size)
        check_windows(self, self.stride, wanted=B if shuffle else 1, field="L")
        self.steps_per_epoch = self.windows // B if shuffle else -(-self.windows // B)
        self.epoch = functools.lru_cache(maxsize=2)(self._epoch)

    def _check_fields(self) -> None:
        if self.B < 1 or self.stride < 1 or self.overlap < 0:
            raise UserError(
                f"B={self.B}, L={self.L}, overlap={self.overlap}, framed={self.framed}: a batch "
                "needs a row, and a row at least one token besides its overlap or its frame"
            )
        if self.framed and self.overlap:
            raise UserError(f"overlap={self.overlap}: framed rows have none")
        missing = {"cls", "sep"} - set(self.corpus.tokenizer.special)
        if self.framed and missing:
            names = " and no ".join(f"<{name}>" for name in sorted(missing))
            raise UserError(f"framed=True, but this vocabulary has no {names}")

    def _whole(self, size: int) -> int:
        """How many windows read a text of this size to its end; the first has no overlap."""
        first = self.L - 2 if self.framed else self.L
        return 1 + -(-max(0, size - first) // self.stride) if size else 0

    def fingerprint(self) -> dict[str, Any]:
        """What a position depends on: compare it before going on from one."""
        return fingerprint(self, "B", "L", "framed", "overlap", "seed", "shuffle")

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """These rows of batch number `step`, counted from 0 over all epochs."""
        number, k = divmod(step, self.steps_per_epoch)
        epoch = self.epoch(number)
        row_B = np.arange(k * self.B, (k + 1) * self.B)[rows]
        real_B = row_B < self.windows
        window_B1 = epoch.order[np.where(real_B, row_B, 0)][:, None]
        rows_of = self._framed if self.framed else self._plain
        batch = rows_of(epoch, window_B1, real_B[:, None])
        batch["word_starts_BL"] = self.corpus.tokenizer.word_start_V[batch["tokens_BL"]]
        batch["weight_B"] = real_B.astype(np.float32)
        return batch

    def _epoch(self, number: int) -> Epoch:
        documents, order, offset = self.documents, np.arange(self.windows), 0
        if self.shuffle:
            documents = shuffled(documents, self.seed, DOCUMENTS, number)
            order = shuffled(order, self.seed, WINDOWS, number)
        stream = Stream(self.corpus, documents)
        if self.shuffle:
            offset = int(draws(self.seed, OFFSET, number).random() * stream.size)
        sizes = np.diff(stream.begins)
        words, bytes_ = self.corpus.words[documents], self.corpus.bytes[documents]
        return Epoch(stream, order, offset, words / sizes, bytes_ / sizes)

    def _plain(self, epoch: Epoch, window_B1: np.ndarray, real_B1: np.ndarray) -> Batch:
        """Tokens, and the next of each; before the text's first comes its last one, an <eod>."""
        column = np.arange(self.L)
        before_B1 = epoch.offset + window_B1 * self.stride - 1
        places = epoch.stream.find(before_B1 + np.arange(self.L + 1), FORWARDS)
        valid_BL = real_B1 & (before_B1 + 1 + column < self.end)
        is_first_B1 = (window_B1 == 0) & (not self.shuffle)
        loss_mask_BL = valid_BL & (is_first_B1 | (column >= self.overlap))
        tokens_BN = self.corpus.tokens[places.corpus].astype(np.int32)
        document_BL = places.document[:, 1:]
        return {
            "tokens_BL": np.where(valid_BL, tokens_BN[:, :-1], self._filler),
            "next_BL": np.where(valid_BL, tokens_BN[:, 1:], self._filler),
            "document_start_BL": valid_BL & epoch.stream.opens_document(places, FORWARDS)[:, 1:],
            "valid_BL": valid_BL,
            "loss_mask_BL": loss_mask_BL,
            "words_B": _sums(epoch.words[document_BL], loss_mask_BL),
            "bytes_B": _sums(epoch.bytes[document_BL], loss_mask_BL),
        }

    def _framed(self, epoch: Epoch, window_B1: np.ndarray, real_B1: np.ndarray) -> Batch:
        """<cls>, text, <sep>, and padding where the text has ended."""
        special, column = self.corpus.tokenizer.special, np.arange(self.L)
        begin_B1 = epoch.offset + window_B1 * self.stride
        size_B1 = np.minimum(self.stride, self.end - begin_B1)
        places = epoch.stream.find(begin_B1 + column - 1, FORWARDS)
        tokens_BL = self.corpus.tokens[places.corpus].astype(np.int32)
        tokens_BL[:, 0] = special["cls"]
        tokens_BL[column == size_B1 + 1] = special["sep"]
        valid_BL = real_B1 & (column < size_B1 + 2)
        text_BL = valid_BL & (column > 0) & (column < size_B1 + 1)
        return {
            "tokens_BL": np.where(valid_BL, tokens_BL, self._filler),
            "document_start_BL": text_BL & epoch.stream.opens_document(places, FORWARDS),
            "valid_BL": valid_BL,
        }

    @property
    def _filler(self) -> np.int32:
        special = self.corpus.tokenizer.special
        return np.int32(special.get("pad", special["eod"]))


def _sums(rate_BL: np.ndarray, chosen_BL: np.ndarray) -> np.ndarray:
    return np.where(chosen_BL, rate_BL, 0.0).sum(axis=1).astype(np.float32)
