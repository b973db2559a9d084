"""BPTT (AWD-LSTM): row r of a batch goes on where row r of the batch before ended."""

import bisect
import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays
from pretrain.data.batches.document_stream import Stream
from pretrain.data.batches.row_lengths import choose_length, list_lengths
from pretrain.data.batches.shuffling import make_rng, shuffle_array
from pretrain.data.batches.text_layout import TextLayout
from pretrain.runtime.errors import UserError

DOCUMENTS, WINDOWS = range(2)  # what randomness is for
LEAST = 5  # tokens of the shortest window, but for the last of an epoch


class Epoch(NamedTuple):
    """The text of an epoch, and where in each row's share its windows end."""

    stream: Stream
    ends: np.ndarray  # [windows]


@dataclasses.dataclass(kw_only=True, eq=False)
class BatchLayout(TextLayout):
    """Rows that each read their own share of the text, by a window of varying length a step.

    The text of an epoch is its documents joined in an order drawn anew from (seed, epoch), and a
    row's share one piece of it.  All rows of a batch have the same length (Merity et al. 2017,
    section 5): about `bptt` tokens, or for a share `short` of the batches half of that, with a
    standard deviation `std`, drawn from (seed, epoch).  Each token is predicted exactly once an
    epoch.

    Without `shuffle` windows are of L tokens, in the corpus's order, and rows that have none left
    weigh 0.

    A batch holds

        next_BL            int32, what is to be predicted
        tokens_BL          int32, the token before each; the text's first has an <eod> before it
        document_start_BL  bool: next_BL begins a document, in reading order
        continues_B        bool: the row goes on where it ended in the batch before
        valid_BL           bool: within the window; rows are padded at their end
        loss_mask_BL       bool: the same
        weight_B           float32
        words_B, bytes_B   float32: original words and bytes of what is predicted, a document's
                           spread evenly over its tokens

    Attributes:
        L: tokens of the longest window.
        bptt: tokens of a window, on average.
        short: the share of the batches whose windows are half as long.
        std: the standard deviation of the length; with short=0, 0 makes all windows equally long.
        backward: the text is read from its end, for a model that predicts what comes before.
        lengths: that windows are padded to, the least that is long enough; a program is compiled
            for each.  Longer ones, and all where there is no `shuffle`, are padded to L.

    Raises:
        UserError: the text has fewer tokens than the batch has rows, or the fields do not fit.
    """

    L: int = 80
    bptt: int = 70
    std: float = 5.0
    short: float = 0.05
    backward: bool = False
    lengths: Sequence[int] = ()

    def __post_init__(self):
        if self.B < 1 or not LEAST <= self.bptt <= self.L or not 0 <= self.short <= 1:
            raise UserError(
                f"B={self.B}, L={self.L}, bptt={self.bptt}, short={self.short}: a batch needs a "
                f"row, bptt lies between {LEAST} and L, short between 0 and 1"
            )

    def shapes(self) -> Shapes:
        B, BL = (self.B,), (self.B, self.L)
        return (
            describe_arrays("tokens_BL next_BL", BL, np.int32)
            | describe_arrays("document_start_BL valid_BL loss_mask_BL", BL, bool)
            | describe_arrays("continues_B", B, bool)
            | describe_arrays("weight_B words_B bytes_B", B, np.float32)
        )

    def open_text(self) -> None:
        windows, edges_B = self.count_windows(self.L), np.arange(self.B + 1)
        if self.shuffle:
            self.require_windows(self.size, 1, least=self.B, field="B")
            # Shares differ by one token at most, so that none is left over.
            self.begins_B = edges_B * self.size // self.B
            # About: each epoch draws its own lengths.
            windows = int(self.size / (self.bptt * (1 - self.short / 2)))
        else:
            self.require_windows(windows, self.L, least=1, field="L")
            self.begins_B = np.minimum(edges_B * -(-windows // self.B) * self.L, self.size)
        self.share = int(np.diff(self.begins_B).max())
        self.steps_per_epoch = -(-windows // self.B)
        self.first_steps = [0]

    def open_epoch(self, number: int) -> Epoch:
        documents = self.documents
        if self.shuffle:
            documents = shuffle_array(documents, self.seed, DOCUMENTS, number)
        return Epoch(Stream(self.corpus, documents), self.draw_ends(number))

    def draw_ends(self, number: int) -> np.ndarray:
        """Draws where the windows of an epoch end in each row's share: [windows]."""
        if not self.shuffle:
            return np.minimum(np.arange(self.L, self.share + self.L, self.L), self.share)
        rng, most = make_rng(self.seed, WINDOWS, number), -(-self.share // LEAST)
        bases = np.where(rng.random(most) < self.short, self.bptt / 2, self.bptt)
        # Drawn, so that a token is seldom at the same place of its window as in another epoch; what
        # is drawn longer than L is cut, as in the released finetune.py.
        lengths = np.clip((bases + self.std * rng.standard_normal(most)).astype(int), LEAST, self.L)
        ends = np.cumsum(lengths)
        return np.append(ends[ends < self.share], self.share)

    def find_epoch(self, step: int) -> tuple[int, int]:
        """Finds (the epoch of a step, the step's number within it)."""
        if not self.shuffle:
            return 0, step
        with self._lock:
            # How many steps an epoch has is drawn with its windows: one is known after all before
            # it.
            while self.first_steps[-1] <= step:
                windows = len(self.draw_ends(len(self.first_steps) - 1))
                self.first_steps.append(self.first_steps[-1] + windows)
        number = bisect.bisect_right(self.first_steps, step) - 1
        return number, step - self.first_steps[number]

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        number, k = self.find_epoch(step)
        epoch = self.epoch(number)
        begin = epoch.ends[k - 1] if k else 0
        first_B1, last_B1 = self.begins_B[:-1][rows, None], self.begins_B[1:][rows, None]
        place_BL = first_B1 + begin + np.arange(self.pad(epoch.ends[k] - begin))
        valid_BL = place_BL < np.minimum(first_B1 + epoch.ends[k], last_B1)
        batch = self._read(epoch.stream, place_BL, valid_BL)
        # The next epoch joins the documents in another order: no row goes on into it.
        batch["continues_B"] = np.full(len(place_BL), k > 0)
        batch["weight_B"] = valid_BL.any(axis=1).astype(np.float32)
        return batch

    def pad(self, window: int) -> int:
        """Returns the length of the rows that hold a window of so many tokens."""
        # Known by the window alone: rows of all hosts have the same length.
        return choose_length(list_lengths(self.lengths, self.L), window) if self.shuffle else self.L

    def fingerprint(self) -> dict[str, Any]:
        # Without the field where it is not used: runs without it go on.
        fields = super().fingerprint() | {"lengths": list(self.lengths)}
        return fields if self.lengths else {k: x for k, x in fields.items() if k != "lengths"}

    def _read(self, stream: Stream, place_BL: np.ndarray, valid_BL: np.ndarray) -> Batch:
        special, backward_B1 = self.corpus.tokenizer.special, np.full((1, 1), self.backward)
        places = stream.find(place_BL, backward_B1)
        before = stream.find(place_BL - 1, backward_B1)
        tokens_BL, next_BL = (
            self.corpus.tokens[x.corpus].astype(np.int32) for x in (before, places)
        )
        # Before the text stands what ends one, whichever way it is read.
        tokens_BL[place_BL == 0] = special["eod"]
        return {
            "tokens_BL": np.where(valid_BL, tokens_BL, special["eod"]).astype(np.int32),
            "next_BL": np.where(valid_BL, next_BL, special["eod"]).astype(np.int32),
            "document_start_BL": valid_BL & stream.opens_document(places, backward_B1),
            "valid_BL": valid_BL,
            "loss_mask_BL": valid_BL,
            **stream.count_units(places, valid_BL),
        }
