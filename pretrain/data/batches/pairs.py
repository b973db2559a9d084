"""Pairs (BERT): two runs of sentences, A and B, where B follows A or comes from elsewhere."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays, framed_rows
from pretrain.data.batches.packing import pack_examples
from pretrain.data.batches.pair_sampling import Pairs, PairSampler, SentenceText, truncate_pairs
from pretrain.data.batches.shuffling import make_rng, shuffle_array
from pretrain.data.batches.text_layout import TextLayout
from pretrain.data.corpus.prepared_corpus import Corpus
from pretrain.runtime.errors import UserError

INSTANCES, ORDER, ROWS = range(3)  # what randomness is for


class Epoch(NamedTuple):
    """The examples of an epoch, and which of them a row has; -1: no more."""

    pairs: Pairs
    rows_RO: np.ndarray


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

    With `pack` the rows above are examples, of which a row holds several, one behind the other,
    then <pad> (Krell et al., 2021, arXiv 2107.02027).  It has, in place of `consecutive_B`,

        starts_BO       int32: where each example begins; L: the row has no more
        consecutive_BO  int32, only with `next_sentence`

    Attributes:
        pack: the most examples that a row holds, as far as they fit; 0: each has a row of its own.
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
    pack: int = 0

    def __post_init__(self):
        self.room = self.L - 2 - self.next_sentence  # tokens of A and B
        if self.L < 5:
            raise UserError(f"L={self.L}: a row is two segments and 3 special tokens, 5 or more")
        if self.B < 1:
            raise UserError(f"B={self.B}: a batch has rows")
        # A bool is an int in Python, and would be a row of one example.
        if isinstance(self.pack, bool) or not isinstance(self.pack, int) or self.pack < 0:
            raise UserError(
                f"pack={self.pack}: it is the most examples of a row, as pack=8; 0: there is one"
            )
        if not 0 <= self.short_seq_prob <= 1:
            raise UserError(
                f"short_seq_prob={self.short_seq_prob}: it is a share of the rows, from 0 to 1"
            )

    @property
    def required_special(self) -> tuple[str, ...]:
        return framed_rows.MARKS

    def shapes(self) -> Shapes:
        B, BL = (self.B,), (self.B, self.L)
        shapes = (
            describe_arrays("tokens_BL segments_BL", BL, np.int32)
            | describe_arrays("valid_BL word_starts_BL", BL, bool)
            | describe_arrays("weight_B", B, np.float32)
        )
        BO = (self.B, self.pack)
        if self.next_sentence:
            name, shape = ("consecutive_BO", BO) if self.pack else ("consecutive_B", B)
            shapes |= describe_arrays(name, shape, np.int32)
        return shapes | (describe_arrays("starts_BO", BO, np.int32) if self.pack else {})

    def open_text(self) -> None:
        text = SentenceText(self.corpus, self.documents)
        if len(text) <= self.next_sentence:
            raise UserError(
                f"{self.split} split has {len(text)} documents with text but pairs need "
                f"{1 + self.next_sentence} or more: more files, or "
                "--config.corpus.documents=blank, give it more"
            )
        self.sampler = PairSampler(
            text, self.room, self.short_seq_prob, self.next_sentence, self.faithful
        )
        # Rows are drawn, and there are not always as many: every epoch is as long as the first.
        count = len(self.epoch(0).rows_RO)
        if self.shuffle and count < self.B:
            raise UserError(
                f"training split makes {count} rows of L={self.L} but batch has {self.B}: "
                "use a smaller B or L, or more text in this split"
            )
        self.set_epoch(count, self.B)

    def open_epoch(self, number: int) -> Epoch:
        rng = make_rng(self.seed, INSTANCES, number)
        pairs = truncate_pairs(rng, self.sampler.sample(rng), self.room)
        # Sampled by document; the corpus's order is what a split without `shuffle` promises.
        order = np.argsort(pairs.a_begin, kind="stable")
        if self.shuffle:
            order = shuffle_array(order, self.seed, ORDER, number)
        pairs = pairs.take(order)
        if not self.pack:
            return Epoch(pairs, np.arange(len(order))[:, None])
        rows_RO = pack_examples(self._size(pairs), self.L, self.pack)
        if self.shuffle:
            # Rows of many examples have a low first one: without this they would come early.
            rows_RO = shuffle_array(rows_RO, self.seed, ROWS, number)
        return Epoch(pairs, rows_RO)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        number, k = divmod(step, self.steps_per_epoch)
        pairs, rows_RO = self.epoch(number)
        count = len(rows_RO)
        row_B = k * self.B + np.arange(self.B)[rows]
        text_B = np.ones(len(row_B), bool) if self.shuffle else row_B < count
        # An epoch may have fewer rows than the first one: then some come twice, else some are left
        # out.
        index_BO = rows_RO[row_B % count]
        there_BO = (index_BO >= 0) & text_B[:, None]
        pairs = pairs.take(index_BO)
        sizes_BO = self._size(pairs) * there_BO
        starts_BO = np.cumsum(sizes_BO, 1) - sizes_BO
        batch = lay_out_examples(self.corpus, pairs, starts_BO, sizes_BO, self.L)
        batch["weight_B"] = text_B.astype(np.float32)
        if self.next_sentence:
            follows_BO = (pairs.consecutive & there_BO).astype(np.int32)
            batch |= (
                {"consecutive_BO": follows_BO} if self.pack else {"consecutive_B": follows_BO[:, 0]}
            )
        if self.pack:
            batch["starts_BO"] = np.where(there_BO, starts_BO, self.L).astype(np.int32)
        return batch

    def _size(self, pairs: Pairs) -> np.ndarray:
        """Returns the tokens of each example, marks included."""
        return pairs.a + pairs.b + self.L - self.room

    def fingerprint(self) -> dict[str, Any]:
        fingerprint = super().fingerprint()
        # A run of before there was such a field goes on.
        return fingerprint if self.pack else {k: x for k, x in fingerprint.items() if k != "pack"}


def lay_out_examples(
    corpus: Corpus, pairs: Pairs, starts_BO: np.ndarray, sizes_BO: np.ndarray, L: int
) -> Batch:
    """Lays examples out: <cls>, A, <sep>, B, <sep>; nothing but padding where no text is.

    Args:
        pairs: fields [B, O].
        starts_BO, sizes_BO: of the examples in their rows, in order; those that are not there have
            size 0.
    """
    column = np.arange(L)
    number_BL = (column[:, None] >= starts_BO[:, None, 1:]).sum(2)  # the example of each column

    def spread(x_BO: np.ndarray) -> np.ndarray:
        return np.take_along_axis(x_BO, number_BL, 1) if x_BO.shape[1] > 1 else x_BO

    start, size = spread(starts_BO), spread(sizes_BO)
    a_begin, a, b_begin = (spread(field) for field in pairs[:3])
    place_BL = column - start  # within its example
    valid_BL = place_BL < size
    in_b_BL = (place_BL > a + 1) & valid_BL
    # Places in the corpus: B may be of another document than A.
    position_BL = np.where(in_b_BL, b_begin - a - 2, a_begin - 1) + place_BL
    return framed_rows.lay_out_rows(
        corpus,
        position_BL,
        is_cls_BL=place_BL == 0,
        is_sep_BL=(place_BL == a + 1) | (place_BL == size - 1),
        segments_BL=in_b_BL,
        valid_BL=valid_BL,
    )
