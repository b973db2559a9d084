"""Lanes (XLNet): row r of a batch continues row r of the batch before, forwards or backwards."""

import functools
from typing import Any, NamedTuple

import numpy as np

from pretrain.data.batches import Batch
from pretrain.data.batches.document_stream import (
    Places,
    Stream,
    check_windows,
    draws,
    fingerprint,
    shuffled,
)
from pretrain.data.corpus.format import Corpus
from pretrain.runtime.errors import UserError

ORDER, PAIRS = range(2)  # what randomness is for


class Pair(NamedTuple):
    """Two segments, A then B, each [B, 1]: where B begins, how long they are, whether B follows."""

    b_begin: np.ndarray
    a: np.ndarray
    b: np.ndarray
    consecutive: np.ndarray


class Lanes:
    """Rows of `reuse_len` tokens, then A <sep> B <sep> <cls>, L in all.

    The text of an epoch is its documents joined in an order drawn anew from (seed, epoch); each
    lane reads its own share of it, `reuse_len` tokens further with each step.  A goes on where
    the reused part ends.  B follows A, or for half of the rows is a random place of the same text,
    from the beginning of a sentence (Yang et al., 2019; data_utils.py).  With `bidirectional`, even
    rows read forwards and odd rows read the same text backwards, so documents begin with <eod>.

    A batch holds `tokens_BL`, `segments_BL` int32 (0 reused, A and its <sep>; 1 B and its <sep>;
    2 <cls>); `document_start_BL` (a document begins here, or the row does not continue the one
    before), `word_starts_BL`, `backward_B` bool (only `bidirectional`); `weight_B` float32;
    `consecutive_B` int32.

    Without `shuffle` every window is read once, in the corpus's order, and rows that have none
    left weigh 0.  With it, windows that do not fill a batch wait for the next epoch's order.

    Raises:
        UserError: the text has fewer windows than the batch has rows, or the fields do not fit.
    """

    def __init__(
        self,
        corpus: Corpus,
        documents: np.ndarray,
        *,
        B: int,
        L: int,
        reuse_len: int,
        bidirectional: bool = True,
        seed: int = 0,
        shuffle: bool = True,
    ):
        self.corpus, self.documents, self.shuffle = corpus, documents, shuffle
        self.B, self.L, self.reuse_len, self.bidirectional, self.seed = (
            B,
            L,
            reuse_len,
            bidirectional,
            seed,
        )
        self.lanes = B // 2 if bidirectional else B
        self.pair = L - reuse_len - 3  # tokens of A and B
        self._check_fields()
        size = int((corpus.documents[documents + 1] - corpus.documents[documents]).sum())
        self.windows = size // reuse_len if shuffle else -(-size // reuse_len)
        check_windows(self, reuse_len, wanted=self.lanes, field="reuse_len")
        self.steps_per_epoch = (
            self.windows // self.lanes if shuffle else -(-self.windows // self.lanes)
        )
        self.stream = functools.lru_cache(maxsize=2)(self._stream)

    def _check_fields(self) -> None:
        if self.reuse_len < 1 or self.pair < 2:
            raise UserError(
                f"reuse_len={self.reuse_len} does not fit L={self.L}: a row is the reused part, "
                "two segments and 3 special tokens, so reuse_len must lie between 1 and L - 5"
            )
        if self.B < 1 or (self.bidirectional and self.B % 2):
            raise UserError(
                f"B={self.B} with bidirectional={self.bidirectional}: rows come in pairs"
            )

    def fingerprint(self) -> dict[str, Any]:
        """What a position depends on: compare it before going on from one."""
        return fingerprint(self, "B", "L", "reuse_len", "bidirectional", "seed", "shuffle")

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """These rows of batch number `step`, counted from 0 over all epochs."""
        epoch, k = divmod(step, self.steps_per_epoch)
        stream = self.stream(epoch)
        row_B1 = np.arange(self.B)[rows, None]
        backward_B1 = (row_B1 % 2 == 1) if self.bidirectional else np.zeros_like(row_B1, bool)
        window_B1 = (row_B1 // 2 if self.bidirectional else row_B1) * self.steps_per_epoch + k
        begin_B1 = window_B1 * self.reuse_len
        chance_B3 = draws(self.seed, PAIRS, step).random((self.B, 3))[rows]
        pair = self._split(stream, begin_B1 + self.reuse_len, backward_B1, chance_B3)
        batch = self._rows(stream, begin_B1, backward_B1, pair, first=k == 0)
        batch["weight_B"] = (window_B1 < self.windows)[:, 0].astype(np.float32)
        return batch

    def _stream(self, epoch: int) -> Stream:
        order = self.documents
        return Stream(
            self.corpus, shuffled(order, self.seed, ORDER, epoch) if self.shuffle else order
        )

    def _split(
        self, stream: Stream, begin_B1: np.ndarray, backward_B1: np.ndarray, chance_B3: np.ndarray
    ) -> Pair:
        """A and B for the text from `begin_B1`, cut at changes of sentence."""
        coin_B1, which_B1, where_B1 = np.split(chance_B3, 3, axis=1)
        size = self.pair
        ahead = np.arange(1, size + size // 2)  # a change further on cannot move either cut
        change_BN = stream.opens_sentence(begin_B1 + ahead, backward_B1)
        within_BN = change_BN[:, : size - 1]
        cuts_B1 = within_BN.sum(1, keepdims=True)
        chosen_B1 = _nth(within_BN, (which_B1 * cuts_B1).astype(int) + 1) + 1
        end_B1 = _nth(change_BN[:, size - 1 :], 1) + size
        consecutive_B1 = (coin_B1 >= 0.5) & (cuts_B1 > 0)
        a_B1 = np.where(cuts_B1 > 0, chosen_B1, end_B1)
        far_B1, far_size_B1 = self._elsewhere(
            stream, (where_B1 * stream.size).astype(int), np.maximum(1, size - a_B1), backward_B1
        )
        b_begin_B1 = np.where(consecutive_B1, begin_B1 + a_B1, far_B1)
        b_B1 = np.where(consecutive_B1, end_B1 - a_B1, far_size_B1)
        return Pair(b_begin_B1, *truncated(a_B1, b_B1, size), consecutive_B1)

    def _elsewhere(
        self, stream: Stream, place_B1: np.ndarray, size_B1: np.ndarray, backward_B1: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whole sentences around `size_B1` tokens from a place: where they begin, how many tokens.

        The number stops at what a row has room for.
        """
        begin_B1 = stream.sentence_of(place_B1, backward_B1)
        ahead = np.arange(1, self.pair)
        change_BN = stream.opens_sentence(begin_B1 + ahead, backward_B1)
        change_BN &= ahead >= place_B1 - begin_B1 + size_B1
        return begin_B1, _nth(change_BN, 1) + 1

    def _rows(
        self,
        stream: Stream,
        begin_B1: np.ndarray,
        backward_B1: np.ndarray,
        pair: Pair,
        first: bool,
    ) -> Batch:
        """The rows laid out: reused part and A, <sep>, B, <sep>, <cls>."""
        column = np.arange(self.L)
        sep_B1 = self.reuse_len + pair.a
        in_b_BL = column > sep_B1
        special_BL = (column == sep_B1) | (column >= self.L - 2)
        position_BL = np.where(in_b_BL, pair.b_begin - sep_B1 - 1, begin_B1) + column
        places = stream.find(position_BL, backward_B1)
        document_start_BL = stream.opens_document(places, backward_B1)
        document_start_BL &= ~special_BL & (~in_b_BL | pair.consecutive)
        document_start_BL[:, 0] |= first
        tokens_BL = self._tokens(places, special_BL)
        batch = {
            "tokens_BL": tokens_BL,
            "segments_BL": in_b_BL.astype(np.int32) + (column == self.L - 1),
            "document_start_BL": document_start_BL,
            "word_starts_BL": self.corpus.tokenizer.word_start_V[tokens_BL],
            "consecutive_B": pair.consecutive[:, 0].astype(np.int32),
        }
        return batch | ({"backward_B": backward_B1[:, 0]} if self.bidirectional else {})

    def _tokens(self, places: Places, special_BL: np.ndarray) -> np.ndarray:
        special = self.corpus.tokenizer.special
        tokens_BL = self.corpus.tokens[places.corpus].astype(np.int32)
        tokens_BL[special_BL] = special["sep"]
        tokens_BL[:, -1] = special["cls"]
        return tokens_BL


def truncated(a: np.ndarray, b: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths cut to `size` in all, always from the longer one; B's if they are equal."""
    kept = np.minimum(a, np.maximum(size - b, (size + 1) // 2))
    return kept, size - kept


def _nth(true_BN: np.ndarray, n: np.ndarray | int) -> np.ndarray:
    """The index [B, 1] of the n-th True (from 1) of each row; the row's length if it has fewer."""
    reached_BN = np.cumsum(true_BN, axis=1) >= n
    found_B1 = reached_BN.any(1, keepdims=True)
    return np.where(found_B1, reached_BN.argmax(1)[:, None], true_BN.shape[1])
