"""Beginnings: a row is the first L tokens of a document."""

import dataclasses

import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays
from pretrain.data.batches.shuffling import shuffle_array
from pretrain.data.batches.text_layout import TextLayout


@dataclasses.dataclass(kw_only=True, eq=False)
class BatchLayout(TextLayout):
    """Rows of the L tokens that a document begins with, each predicted from the one before it."""

    def shapes(self) -> Shapes:
        """Returns the arrays of a batch."""
        BL = (self.B, self.L)
        return (
            describe_arrays("tokens_BL next_BL", BL, np.int32)
            | describe_arrays("loss_mask_BL", BL, bool)
            | describe_arrays("weight_B", (self.B,), np.float32)
        )

    def open_text(self) -> None:
        """Sets the length of an epoch."""
        self.require_windows(len(self.documents), self.L, least=1, field="L")
        self.set_epoch(max(len(self.documents), self.B), self.B)

    def open_epoch(self, number: int) -> np.ndarray:
        """Draws the order of the documents."""
        return shuffle_array(self.documents, self.seed, number) if self.shuffle else self.documents

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """Reads these rows of batch `step`; documents repeat where there are too few."""
        epoch, k = divmod(step, self.steps_per_epoch)
        number_B = np.arange(k * self.B, (k + 1) * self.B)[rows]
        document_B = self.epoch(epoch)[number_B % len(self.documents)]
        begin_B, end_B = (self.corpus.documents[document_B + i] for i in range(2))
        place_BL = begin_B[:, None] + np.arange(self.L + 1)
        tokens_BL = self.corpus.tokens[np.minimum(place_BL, end_B[:, None] - 1)].astype(np.int32)
        return {
            "tokens_BL": tokens_BL[:, :-1],
            "next_BL": tokens_BL[:, 1:],
            "loss_mask_BL": place_BL[:, 1:] < end_B[:, None],
            "weight_B": np.ones(len(number_B), np.float32),
        }
