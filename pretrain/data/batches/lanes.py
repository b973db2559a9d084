"""Lanes (XLNet): row r of a batch continues row r of the batch before, forwards or backwards."""

import dataclasses
from typing import NamedTuple

import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays
from pretrain.data.batches.document_stream import Places, Stream
from pretrain.data.batches.pair_sampling import truncate_pair
from pretrain.data.batches.shuffling import make_rng, shuffle_array
from pretrain.data.batches.text_layout import TextLayout
from pretrain.runtime.errors import UserError

ORDER, PAIRS = range(2)  # what randomness is for


class Segments(NamedTuple):
    """Two segments, A then B, each [B, 1]: where B begins, how long they are, whether B follows."""

    b_begin: np.ndarray
    a: np.ndarray
    b: np.ndarray
    consecutive: np.ndarray


@dataclasses.dataclass(kw_only=True, eq=False)
class BatchLayout(TextLayout):
    """Rows of `reuse_len` tokens, then A <sep> B <sep> <cls>, L in all.

    The text of an epoch is its documents joined in an order drawn anew from (seed, epoch); each
    lane reads its own share of it, `reuse_len` tokens further with each step.  A goes on where
    the reused part ends.  B follows A, or for half of the rows is a random place of the same text,
    from the beginning of a sentence (Yang et al., 2019; data_utils.py).

    A batch holds

        tokens_BL          int32
        segments_BL        int32; 0: reused, A and its <sep>; 1: B and its <sep>; 2: <cls>
        document_start_BL  bool: a document begins here, or the row does not continue the one before
        word_starts_BL     bool
        backward_B         bool, only with `bidirectional`
        consecutive_B      int32: B follows A
        weight_B           float32

    Without `shuffle` every window is read once, in the corpus's order, and rows that have none
    left weigh 0.  With it, windows that do not fill a batch wait for the next epoch's order.

    Attributes:
        reuse_len: tokens of a row that the memory will keep, and by which the lanes advance.
        bidirectional: even rows read forwards and odd rows read the same text backwards, so there
            documents begin with <eod>.

    Raises:
        UserError: the text has fewer windows than the batch has rows, or the fields do not fit.
    """

    reuse_len: int
    bidirectional: bool = True

    def __post_init__(self):
        self.lanes = self.B // 2 if self.bidirectional else self.B
        self.room = self.L - self.reuse_len - 3  # tokens of A and B
        if self.reuse_len < 1 or self.room < 2:
            raise UserError(
                f"reuse_len={self.reuse_len} does not fit L={self.L}: a row is the reused part, "
                "two segments and 3 special tokens, so reuse_len must lie between 1 and L - 5"
            )
        if self.B < 1 or (self.bidirectional and self.B % 2):
            raise UserError(
                f"B={self.B} with bidirectional={self.bidirectional}: rows come in pairs"
            )

    @property
    def required_special(self) -> tuple[str, ...]:
        return ("cls", "sep")

    def shapes(self) -> Shapes:
        B, BL = (self.B,), (self.B, self.L)
        shapes = (
            describe_arrays("tokens_BL segments_BL", BL, np.int32)
            | describe_arrays("document_start_BL word_starts_BL", BL, bool)
            | describe_arrays("consecutive_B", B, np.int32)
            | describe_arrays("weight_B", B, np.float32)
        )
        return shapes | (describe_arrays("backward_B", B, bool) if self.bidirectional else {})

    def open_text(self) -> None:
        self.windows = self.count_windows(self.reuse_len)
        self.require_windows(self.windows, self.reuse_len, least=self.lanes, field="reuse_len")
        self.set_epoch(self.windows, self.lanes)

    def open_epoch(self, number: int) -> Stream:
        order = self.documents
        if self.shuffle:
            order = shuffle_array(order, self.seed, ORDER, number)
        return Stream(self.corpus, order)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        number, k = divmod(step, self.steps_per_epoch)
        stream = self.epoch(number)
        row_B1 = np.arange(self.B)[rows, None]
        backward_B1 = (row_B1 % 2 == 1) if self.bidirectional else np.zeros_like(row_B1, bool)
        # A lane's share lies in one piece, so that each step continues the one before.
        window_B1 = (row_B1 // 2 if self.bidirectional else row_B1) * self.steps_per_epoch + k
        begin_B1 = window_B1 * self.reuse_len
        # For all rows, so that a row's draws are the same however the hosts divide them.
        chance_B3 = make_rng(self.seed, PAIRS, step).random((self.B, 3))[rows]
        segments = sample_segments(
            stream, begin_B1 + self.reuse_len, backward_B1, chance_B3, self.room
        )
        batch = self._lay_out(stream, begin_B1, backward_B1, segments, is_first=k == 0)
        batch["weight_B"] = (window_B1 < self.windows)[:, 0].astype(np.float32)
        return batch

    def _lay_out(
        self,
        stream: Stream,
        begin_B1: np.ndarray,
        backward_B1: np.ndarray,
        segments: Segments,
        is_first: bool,
    ) -> Batch:
        """Lays the rows out: reused part and A, <sep>, B, <sep>, <cls>."""
        column = np.arange(self.L)
        sep_B1 = self.reuse_len + segments.a
        in_b_BL = column > sep_B1
        special_BL = (column == sep_B1) | (column >= self.L - 2)
        # Columns of A go on from the reused part; those of B count from where B begins.
        position_BL = np.where(in_b_BL, segments.b_begin - sep_B1 - 1, begin_B1) + column
        places = stream.find(position_BL, backward_B1)
        document_start_BL = stream.opens_document(places, backward_B1)
        document_start_BL &= ~special_BL & (~in_b_BL | segments.consecutive)
        # With a new epoch's order the memory is of other text.
        document_start_BL[:, 0] |= is_first
        tokens_BL = self._read_tokens(places, special_BL)
        batch = {
            "tokens_BL": tokens_BL,
            "segments_BL": in_b_BL.astype(np.int32) + (column == self.L - 1),
            "document_start_BL": document_start_BL,
            "word_starts_BL": self.corpus.tokenizer.word_start_V[tokens_BL],
            "consecutive_B": segments.consecutive[:, 0].astype(np.int32),
        }
        return batch | ({"backward_B": backward_B1[:, 0]} if self.bidirectional else {})

    def _read_tokens(self, places: Places, special_BL: np.ndarray) -> np.ndarray:
        special = self.corpus.tokenizer.special
        tokens_BL = self.corpus.tokens[places.corpus].astype(np.int32)
        tokens_BL[special_BL] = special["sep"]
        tokens_BL[:, -1] = special["cls"]
        return tokens_BL


def sample_segments(
    stream: Stream,
    begin_B1: np.ndarray,
    backward_B1: np.ndarray,
    chance_B3: np.ndarray,
    room: int,
) -> Segments:
    """Samples A and B for the text from `begin_B1` on, cut at changes of sentence.

    Args:
        chance_B3: uniform in [0, 1): whether B follows, where A is cut, where another B is from.
        room: tokens of A and B.
    """
    coin_B1, which_B1, where_B1 = np.split(chance_B3, 3, axis=1)
    ahead = np.arange(1, room + room // 2)  # a change further on cannot move either cut
    change_BN = stream.opens_sentence(begin_B1 + ahead, backward_B1)
    within_BN = change_BN[:, : room - 1]
    cuts_B1 = within_BN.sum(1, keepdims=True)
    cut_B1 = _find_nth(within_BN, (which_B1 * cuts_B1).astype(int) + 1) + 1
    end_B1 = _find_nth(change_BN[:, room - 1 :], 1) + room
    # As the released code: where no sentence ends within A's room, B cannot follow.
    consecutive_B1 = (coin_B1 >= 0.5) & (cuts_B1 > 0)
    # Where no sentence ends within reach, A has all of it and B is from elsewhere.
    a_B1 = np.where(cuts_B1 > 0, cut_B1, end_B1)
    place_B1 = (where_B1 * stream.size).astype(int)
    least_B1 = np.maximum(1, room - a_B1)
    far_B1, far_size_B1 = _sample_elsewhere(stream, place_B1, least_B1, backward_B1, room)
    b_begin_B1 = np.where(consecutive_B1, begin_B1 + a_B1, far_B1)
    b_B1 = np.where(consecutive_B1, end_B1 - a_B1, far_size_B1)
    return Segments(b_begin_B1, *truncate_pair(a_B1, b_B1, room), consecutive_B1)


def _sample_elsewhere(
    stream: Stream, place_B1: np.ndarray, size_B1: np.ndarray, backward_B1: np.ndarray, room: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns where whole sentences around `size_B1` tokens from a place begin, and their size."""
    begin_B1 = stream.find_sentence(place_B1, backward_B1)
    ahead = np.arange(1, room)
    change_BN = stream.opens_sentence(begin_B1 + ahead, backward_B1)
    change_BN &= ahead >= place_B1 - begin_B1 + size_B1
    return begin_B1, _find_nth(change_BN, 1) + 1


def _find_nth(true_BN: np.ndarray, n: np.ndarray | int) -> np.ndarray:
    """Finds the index [B, 1] of the n-th True (from 1) of each row; N if it has fewer."""
    reached_BN = np.cumsum(true_BN, axis=1) >= n
    has_nth_B1 = reached_BN.any(1, keepdims=True)
    return np.where(has_nth_B1, reached_BN.argmax(1)[:, None], true_BN.shape[1])
