"""Pairs (BERT): two runs of sentences, A and B, where B follows A or comes from elsewhere."""

import dataclasses

import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays, framed_rows
from pretrain.data.batches.pair_sampling import Pairs, PairSampler, SentenceText, truncate_pairs
from pretrain.data.batches.shuffling import make_rng, shuffle_array
from pretrain.data.batches.text_layout import TextLayout
from pretrain.runtime.errors import UserError

INSTANCES, ORDER = range(2)  # what randomness is for


@dataclasses.dataclass(kw_only=True, eq=False)
class BatchLayout(TextLayout):
    """Rows of <cls> A <sep> B <sep>, then <pad>: L in all.

    From a document, whole sentences are taken until they fill a row, or, for a share
    `short_seq_prob` of the rows, a length drawn from 2 to L - 3.  A is a random number of them from
    the first on.  B is the rest; or it is sentences of another document, from a random one on, and
    the rest begins the next row.  What does not fit is dropped from the longer of the two, token by
    token from either end (Devlin et al., 2019, A.2; create_pretraining_data.py).

    A batch holds

        tokens_BL       int32
        segments_BL     int32; 1: B and its <sep>; 0: the others
        valid_BL        bool: no padding
        word_starts_BL  bool
        consecutive_B   int32, only with `next_sentence`: B follows A
        weight_B        float32

    Rows are drawn and shuffled anew each epoch.  Without `shuffle` every row of the first is read
    once, in the corpus's order.

    Attributes:
        short_seq_prob: share of the rows that are short.
        next_sentence: else a row is <cls> A <sep>, as many whole sentences of one document as fit
            (DOC-SENTENCES of Liu et al., 2019).
        faithful: tosses a fair coin, and draws short lengths once for each document, so that
            short rows are more than their share, as the original does.

    Raises:
        UserError: the text has fewer rows than a batch or no other document to take B from, the
            vocabulary lacks a special token, or the fields do not fit.
    """

    short_seq_prob: float = 0.1
    next_sentence: bool = True
    faithful: bool = False

    def __post_init__(self):
        self.room = self.L - 2 - self.next_sentence  # tokens of A and B
        if self.L < 5:
            raise UserError(f"L={self.L}: a row is two segments and 3 special tokens, 5 or more")
        if self.B < 1:
            raise UserError(f"B={self.B}: a batch has rows")
        if not 0 <= self.short_seq_prob <= 1:
            raise UserError(
                f"short_seq_prob={self.short_seq_prob}: it is a share of the rows, from 0 to 1"
            )

    def shapes(self) -> Shapes:
        B, BL = (self.B,), (self.B, self.L)
        shapes = (
            describe_arrays("tokens_BL segments_BL", BL, np.int32)
            | describe_arrays("valid_BL word_starts_BL", BL, bool)
            | describe_arrays("weight_B", B, np.float32)
        )
        return shapes | (
            describe_arrays("consecutive_B", B, np.int32) if self.next_sentence else {}
        )

    def open_text(self) -> None:
        framed_rows.require_marks(self.corpus, "pairs")
        text = SentenceText(self.corpus, self.documents)
        if len(text) <= self.next_sentence:
            raise UserError(
                f"{self.split} split has {len(text)} documents with text but pairs need "
                f"{1 + self.next_sentence} or more: more files, or documents='blank', give it more"
            )
        self.sampler = PairSampler(
            text, self.room, self.short_seq_prob, self.next_sentence, self.faithful
        )
        # Rows are drawn, and there are not always as many: every epoch is as long as the first.
        count = len(self.epoch(0).a)
        if self.shuffle and count < self.B:
            raise UserError(
                f"training split makes {count} rows of L={self.L} but batch has {self.B}: "
                "use a smaller B or L, or more text in this split"
            )
        self.set_epoch(count, self.B)

    def open_epoch(self, number: int) -> Pairs:
        rng = make_rng(self.seed, INSTANCES, number)
        pairs = truncate_pairs(rng, self.sampler.sample(rng), self.room)
        # Sampled by document; the corpus's order is what a split without `shuffle` promises.
        order = np.argsort(pairs.a_begin, kind="stable")
        if self.shuffle:
            order = shuffle_array(order, self.seed, ORDER, number)
        return pairs.take(order)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        number, k = divmod(step, self.steps_per_epoch)
        pairs = self.epoch(number)
        count = len(pairs.a)
        row_B = k * self.B + np.arange(self.B)[rows]
        text_B = np.ones(len(row_B), bool) if self.shuffle else row_B < count
        # An epoch may have fewer rows than the first one: then some come twice, else some are left
        # out.
        pairs = pairs.take(row_B % count)
        batch = self._lay_out(pairs, text_B) | {"weight_B": text_B.astype(np.float32)}
        if self.next_sentence:
            batch["consecutive_B"] = (pairs.consecutive & text_B).astype(np.int32)
        return batch

    def _lay_out(self, pairs: Pairs, text_B: np.ndarray) -> Batch:
        """Lays the rows out: <cls>, A, <sep>, B, <sep>; nothing but padding where no text is."""
        a_begin_B1, a_B1, b_begin_B1, b_B1, _ = (field[:, None] for field in pairs)
        column = np.arange(self.L)
        end_B1 = (a_B1 + b_B1 + self.L - self.room) * text_B[:, None]
        valid_BL = column < end_B1
        in_b_BL = (column > a_B1 + 1) & valid_BL
        # Places in the corpus: B may be of another document than A.
        position_BL = np.where(in_b_BL, b_begin_B1 - a_B1 - 2, a_begin_B1 - 1) + column
        return framed_rows.lay_out_rows(
            self.corpus,
            position_BL,
            is_sep_BL=(column == a_B1 + 1) | (column == end_B1 - 1),
            segments_BL=in_b_BL,
            valid_BL=valid_BL,
        )
