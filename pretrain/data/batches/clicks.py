"""Clicks: the texts of a search result - query, title, category - and whether it was clicked."""

import dataclasses

import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays, framed_rows
from pretrain.data.batches.shuffling import shuffle_array
from pretrain.data.batches.text_layout import TextLayout
from pretrain.runtime.errors import UserError

LABELS = ("0", "1")  # the text of a document's last sentence: not clicked, clicked


@dataclasses.dataclass(kw_only=True, eq=False)
class BatchLayout(TextLayout):
    """Rows of <cls> query <sep> title <sep> category <sep>, then <pad>: L in all.

    A document has a sentence for each of its texts, and one that is "1" or "0", as
    `finetune.datasets.corpus` writes it with `with_label=True`.  The objective `mlm` predicts it in
    the place of the next sentence, as Meituan's BERT for search.  Too long a row loses the ends of
    its longest texts.

    A batch holds

        tokens_BL       int32
        segments_BL     int32: 0, 1, 2 of the texts; a <sep> is of the text before it
        valid_BL        bool: no padding
        word_starts_BL  bool
        consecutive_B   int32: clicked
        weight_B        float32

    Attributes:
        texts: of a document.

    Raises:
        UserError: a document has other sentences, there are fewer than a batch has rows, the
            vocabulary lacks a special token, or the fields do not fit.
    """

    texts: int = 3

    def __post_init__(self):
        # A row is <cls>, and each text with its <sep>.
        self.room = self.L - 1 - self.texts  # tokens of the texts
        if self.texts < 1 or self.room < self.texts:
            raise UserError(
                f"L={self.L}, texts={self.texts}: a row has <cls>, and of each text a token "
                "and a <sep>"
            )
        if self.B < 1:
            raise UserError(f"B={self.B}: a batch has rows")

    @property
    def required_special(self) -> tuple[str, ...]:
        return framed_rows.MARKS

    def shapes(self) -> Shapes:
        B, BL = (self.B,), (self.B, self.L)
        return (
            describe_arrays("tokens_BL segments_BL", BL, np.int32)
            | describe_arrays("valid_BL word_starts_BL", BL, bool)
            | describe_arrays("weight_B", B, np.float32)
            | describe_arrays("consecutive_B", B, np.int32)
        )

    def open_text(self) -> None:
        count = len(self.documents)
        if count < (self.B if self.shuffle else 1):
            raise UserError(
                f"{self.split} split has {count} documents but batch has {self.B} rows: use a "
                "smaller B, or more text in this split"
            )
        bounds_NT = self._find_sentences()
        self.begins_NT = bounds_NT[:, :-1]
        self.lengths_NT = fit_lengths(np.diff(bounds_NT), self.room)
        self.clicked_N = self._read_labels(bounds_NT[:, -1])
        self.set_epoch(count, self.B)

    def _find_sentences(self) -> np.ndarray:
        """Finds where the texts of each document begin, and its label behind them: [N, T + 1]."""
        ends = [self.corpus.documents[self.documents + i] for i in range(2)]
        first_N, last_N = (np.searchsorted(self.corpus.sentences, x) for x in ends)
        self._require(last_N - first_N == self.texts + 1, f"{self.texts} texts and a label")
        return self.corpus.sentences[first_N[:, None] + np.arange(self.texts + 1)]

    def _read_labels(self, begin_N: np.ndarray) -> np.ndarray:
        """Reads whether each document was clicked."""
        codes = [list(ids) for ids in self.corpus.tokenizer.encode(list(LABELS))]
        # By the last token, as some tokenizers write the blank before a word apart.
        size, last = len(codes[0]), [ids[-1] for ids in codes]
        if len(codes[1]) != size or last[0] == last[1]:
            raise UserError("this vocabulary does not tell 0 from 1, the labels of clicks")
        token_N = self.corpus.tokens[begin_N + size - 1]
        self._require(np.isin(token_N, last), "a last sentence that is 0 or 1")
        return token_N == last[1]

    def _require(self, right_N: np.ndarray, what: str) -> None:
        if not right_N.all():
            number = int(self.documents[np.argmin(right_N)]) + 1
            raise UserError(
                f"document {number} is not to be read as clicks: it needs {what}; see "
                "corpus.source='finetune.datasets.corpus' and its with_label"
            )

    def open_epoch(self, number: int) -> np.ndarray:
        """Draws the order of the documents."""
        order = np.arange(len(self.documents))
        return shuffle_array(order, self.seed, number) if self.shuffle else order

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        number, k = divmod(step, self.steps_per_epoch)
        order = self.epoch(number)
        # The last batch of a held-out text may be short: rows beyond it repeat others, at weight 0.
        row_B = k * self.B + np.arange(self.B)[rows]
        text_B = row_B < len(order)
        index_B = order[row_B % len(order)]
        batch = self._lay_out(self.begins_NT[index_B], self.lengths_NT[index_B], text_B)
        clicked_B = (self.clicked_N[index_B] & text_B).astype(np.int32)
        return batch | {"weight_B": text_B.astype(np.float32), "consecutive_B": clicked_B}

    def _lay_out(self, begin_BT: np.ndarray, length_BT: np.ndarray, text_B: np.ndarray) -> Batch:
        """Lays the rows out; nothing but padding where no text is."""
        column = np.arange(self.L)
        end_BT = np.cumsum(length_BT + 1, 1)  # of each text, where its <sep> stands
        valid_BL = (column <= end_BT[:, -1:]) & text_B[:, None]
        segments_BL = (column[:, None] > end_BT[:, None]).sum(2) * valid_BL
        # From a place in the row to one of the corpus, by text.
        shift_BT = begin_BT - (end_BT - length_BT)
        position_BL = column + np.take_along_axis(shift_BT, segments_BL, 1)
        return framed_rows.lay_out_rows(
            self.corpus,
            position_BL,
            is_sep_BL=(column[:, None] == end_BT[:, None]).any(2),
            segments_BL=segments_BL,
            valid_BL=valid_BL,
        )


def fit_lengths(lengths_NT: np.ndarray, room: int) -> np.ndarray:
    """Shortens lengths to fit a room: the longest loses a token at a time, as in BERT's code."""
    # That leaves all of the longest as long, up to a token, which the later ones keep.
    low_N = np.zeros(len(lengths_NT), int)
    high_N = np.full(len(lengths_NT), max(room, int(lengths_NT.max(initial=0))))
    while (low_N < high_N).any():
        cap_N = (low_N + high_N + 1) // 2
        fits_N = np.minimum(lengths_NT, cap_N[:, None]).sum(1) <= room
        low_N, high_N = np.where(fits_N, cap_N, low_N), np.where(fits_N, high_N, cap_N - 1)
    # Of the texts cut to the common length the last ones get the tokens that are left over.
    cut_NT = lengths_NT > low_N[:, None]
    left_N = room - np.minimum(lengths_NT, low_N[:, None]).sum(1)
    behind_NT = np.cumsum(cut_NT[:, ::-1], 1)[:, ::-1]
    return np.minimum(lengths_NT, low_N[:, None]) + (cut_NT & (behind_NT <= left_N[:, None]))
