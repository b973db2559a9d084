"""Windows (GPT, RoBERTa): documents joined end to end, cut into rows that are read in any order."""

import dataclasses
from typing import NamedTuple

import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays
from pretrain.data.batches.document_stream import Stream
from pretrain.data.batches.shuffling import make_rng, shuffle_array
from pretrain.data.batches.text_layout import TextLayout
from pretrain.runtime.errors import UserError

DOCUMENTS, WINDOWS, OFFSET = range(3)  # what randomness is for
FORWARDS = np.zeros((1, 1), bool)


class Epoch(NamedTuple):
    """The text of an epoch, and the order of its windows."""

    stream: Stream
    order: np.ndarray  # [windows]
    offset: int  # where in the stream window 0 begins


@dataclasses.dataclass(kw_only=True, eq=False)
class BatchLayout(TextLayout):
    """Rows of L consecutive tokens, each predicted from the one before it.

    The text of an epoch is its documents, each with its <eod>, joined in an order drawn anew from
    (seed, epoch), cut into windows at an offset and read in an order of windows drawn likewise.
    Nothing is padded: a window may run over the end of the text into its beginning.  Without
    `shuffle` every token is predicted once, in the corpus's order; the last row is padded, and rows
    that have no text weigh 0.

    A batch holds

        next_BL            int32, what is to be predicted
        tokens_BL          int32, the token before each; the text's first has an <eod> before it
        document_start_BL  bool: next_BL begins a document
        word_starts_BL     bool: tokens_BL begins a word
        valid_BL           bool: within the text
        loss_mask_BL       bool: next_BL is predicted
        weight_B           float32
        words_B, bytes_B   float32: original words and bytes of what is predicted, a document's
                           spread evenly over its tokens

    A framed batch has no `next_BL`, `loss_mask_BL`, `words_B`, `bytes_B`; its `document_start_BL`
    is where tokens_BL begins a document.

    Attributes:
        framed: a row is <cls>, L - 2 consecutive tokens, <sep> (Liu et al., 2019, arXiv
            1907.11692: FULL-SENTENCES).
        overlap: tokens at the beginning of a row that the row before it predicts; without
            `shuffle` the text's first row has no row before it, and predicts them all.

    Raises:
        UserError: the training text has fewer windows than the batch has rows, there is no text
            at all, or the fields do not fit.
    """

    framed: bool = False
    overlap: int = 0

    def __post_init__(self):
        self.stride = self.L - 2 if self.framed else self.L - self.overlap
        if self.B < 1 or self.stride < 1 or self.overlap < 0:
            raise UserError(
                f"B={self.B}, L={self.L}, overlap={self.overlap}, framed={self.framed}: a batch "
                "needs a row, and a row at least one token besides its overlap or its frame"
            )
        if self.framed and self.overlap:
            raise UserError(f"overlap={self.overlap}: framed rows have none")

    @property
    def required_special(self) -> tuple[str, ...]:
        return ("cls", "sep") if self.framed else ()

    def shapes(self) -> Shapes:
        B, BL = (self.B,), (self.B, self.L)
        framed = (
            describe_arrays("tokens_BL", BL, np.int32)
            | describe_arrays("document_start_BL word_starts_BL valid_BL", BL, bool)
            | describe_arrays("weight_B", B, np.float32)
        )
        if self.framed:
            return framed
        return (
            framed
            | describe_arrays("next_BL", BL, np.int32)
            | describe_arrays("loss_mask_BL", BL, bool)
            | describe_arrays("words_B bytes_B", B, np.float32)
        )

    def open_text(self) -> None:
        self.end = np.inf if self.shuffle else self.size  # training goes round and round
        self.windows = self.count_windows(self.stride, self.overlap)
        least = self.B if self.shuffle else 1
        self.require_windows(self.windows, self.stride, least=least, field="L")
        self.set_epoch(self.windows, self.B)

    def open_epoch(self, number: int) -> Epoch:
        # An order takes 8 bytes of memory per window.
        documents, order, offset = self.documents, np.arange(self.windows), 0
        if self.shuffle:
            documents = shuffle_array(documents, self.seed, DOCUMENTS, number)
            order = shuffle_array(order, self.seed, WINDOWS, number)
        stream = Stream(self.corpus, documents)
        if self.shuffle:
            # Each epoch cuts the text at other places.
            offset = int(make_rng(self.seed, OFFSET, number).random() * stream.size)
        return Epoch(stream, order, offset)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        number, k = divmod(step, self.steps_per_epoch)
        epoch = self.epoch(number)
        row_B = np.arange(k * self.B, (k + 1) * self.B)[rows]
        real_B = row_B < self.windows
        # Rows that fill up the last batch read a window all the same, and weigh 0.
        window_B1 = epoch.order[np.where(real_B, row_B, 0)][:, None]
        read_rows = self._read_framed if self.framed else self._read_plain
        batch = read_rows(epoch, window_B1, real_B[:, None])
        batch["word_starts_BL"] = self.corpus.tokenizer.word_start_V[batch["tokens_BL"]]
        batch["weight_B"] = real_B.astype(np.float32)
        return batch

    def _read_plain(self, epoch: Epoch, window_B1: np.ndarray, real_B1: np.ndarray) -> Batch:
        # Before the text's first token comes its last, an <eod>.
        column = np.arange(self.L)
        # From one token before the window: it predicts the first.
        before_B1 = epoch.offset + window_B1 * self.stride - 1
        places = epoch.stream.find(before_B1 + np.arange(self.L + 1), FORWARDS)
        valid_BL = real_B1 & (before_B1 + 1 + column < self.end)
        is_first_B1 = (window_B1 == 0) & (not self.shuffle)
        loss_mask_BL = valid_BL & (is_first_B1 | (column >= self.overlap))
        tokens_BN = self.corpus.tokens[places.corpus].astype(np.int32)
        predicted = places.drop_first()
        return {
            "tokens_BL": np.where(valid_BL, tokens_BN[:, :-1], self._filler),
            "next_BL": np.where(valid_BL, tokens_BN[:, 1:], self._filler),
            "document_start_BL": valid_BL & epoch.stream.opens_document(predicted, FORWARDS),
            "valid_BL": valid_BL,
            "loss_mask_BL": loss_mask_BL,
            **epoch.stream.count_units(predicted, loss_mask_BL),
        }

    def _read_framed(self, epoch: Epoch, window_B1: np.ndarray, real_B1: np.ndarray) -> Batch:
        """Reads <cls>, text, <sep>, and padding where the text has ended."""
        special, column = self.corpus.tokenizer.special, np.arange(self.L)
        begin_B1 = epoch.offset + window_B1 * self.stride
        size_B1 = np.minimum(self.stride, self.end - begin_B1)
        places = epoch.stream.find(begin_B1 + column - 1, FORWARDS)
        tokens_BL = self.corpus.tokens[places.corpus].astype(np.int32)
        # Column 0 was read from the token before the window, which the frame now covers.
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
        # Not every vocabulary has a <pad>, and nothing reads what stands here.
        return np.int32(special.get("pad", special["eod"]))
