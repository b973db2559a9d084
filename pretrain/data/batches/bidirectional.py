"""Bidirectional (ELMo): rows go on from batch to batch, from both ends of the text at once."""

import dataclasses

import numpy as np

from pretrain.data.batches import Batch, Shapes, describe_arrays
from pretrain.data.batches.document_stream import Stream
from pretrain.data.batches.shuffling import shuffle_array
from pretrain.data.batches.text_layout import TextLayout
from pretrain.data.tokenizers.character_ids import get_table
from pretrain.runtime.errors import UserError

DOCUMENT, SENTENCE = 2, 1  # what opens at a token, in reading order; 0: neither
BACKWARD_Z1 = np.array([[False], [True]])


@dataclasses.dataclass(kw_only=True, eq=False)
class BatchLayout(TextLayout):
    """Rows of L tokens and the L predicted from them, forwards (Z=0) and backwards (Z=1).

    The text of an epoch is its documents joined in an order drawn anew from (seed, epoch); each
    row reads its own share of it, L tokens further with each step: forwards from the first token
    on, backwards from the last, so the two directions of a row are at different places
    (as the two data sets of bilm-tf: Peters et al., 2018; bilm/data.py).

    A batch holds

        tokens_BZL    int32, what is read, each direction in its own order
        next_BZL      int32, what is to be predicted
        boundary_BZL  int8; 2: a document begins with this token in reading order, or the row does
                      not continue the one before; 1: a sentence does; 0: neither
        loss_mask_BZL bool: within the text
        weight_B      float32
        chars_BZLW    uint16, only with `characters`: each word as `character_ids` spells it

    Without `shuffle` every token is predicted once in either direction, in the corpus's order, and
    rows that have none left weigh 0.  With it, windows that do not fill a batch wait for the next
    epoch's order.

    Attributes:
        characters: of each word, W; 0: none.

    Raises:
        UserError: the text has fewer windows than the batch has rows, its tokens have no <S> and
            </S>, or the fields do not fit.
    """

    characters: int = 50

    def __post_init__(self):
        if self.B < 1 or self.L < 1:
            raise UserError(f"B={self.B}, L={self.L}: a batch needs a row, and a row a token")

    @property
    def required_special(self) -> tuple[str, ...]:
        return ("bos", "eos")

    def shapes(self) -> Shapes:
        BZL = (self.B, 2, self.L)
        shapes = (
            describe_arrays("tokens_BZL next_BZL", BZL, np.int32)
            | describe_arrays("boundary_BZL", BZL, np.int8)
            | describe_arrays("loss_mask_BZL", BZL, bool)
            | describe_arrays("weight_B", (self.B,), np.float32)
        )
        if self.characters:
            shapes |= describe_arrays("chars_BZLW", (*BZL, self.characters), np.uint16)
        return shapes

    def open_text(self) -> None:
        self.windows = self.count_windows(self.L)
        least = self.B if self.shuffle else 1
        self.require_windows(self.windows, self.L, least=least, field="L")
        self.set_epoch(self.windows, self.B)
        self.table = get_table(self.corpus.tokenizer, self.characters) if self.characters else None

    def open_epoch(self, number: int) -> Stream:
        order = self.documents
        if self.shuffle:
            order = shuffle_array(order, self.seed, number)
        return Stream(self.corpus, order)

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        number, k = divmod(step, self.steps_per_epoch)
        # A row's share lies in one piece, so that each step continues the one before.
        window_B1 = np.arange(self.B)[rows, None] * self.steps_per_epoch + k
        position_BL = window_B1 * self.L + np.arange(self.L)
        batch = self._read(self.epoch(number), position_BL)
        if k == 0:
            # With a new epoch's order the states are of other text.
            batch["boundary_BZL"][:, :, 0] = DOCUMENT
        batch["loss_mask_BZL"] = np.repeat(position_BL[:, None] < self.size, 2, axis=1)
        batch["weight_B"] = (window_B1 < self.windows)[:, 0].astype(np.float32)
        return batch

    def _read(self, stream: Stream, position_BL: np.ndarray) -> Batch:
        # One direction reads the token before a place, and the other predicts it.
        special, tokens = self.corpus.tokenizer.special, self.corpus.tokens
        places = stream.find(position_BL[:, None], BACKWARD_Z1)
        here_BZL = tokens[places.corpus].astype(np.int32)
        before_BZL = tokens[places.corpus - 1].astype(np.int32)  # of the first: the last, </S>
        begins_BZL, ends_BZL = before_BZL == special["eos"], here_BZL == special["eos"]
        # A sentence w1 .. wn </S> is predicted forwards as w1 .. wn </S> from <S> w1 .. wn, and
        # backwards as wn .. w1 <S> from </S> wn .. w1: n + 1 predictions, none from another
        # sentence's word.
        before_BZL[begins_BZL] = special["bos"]
        boundary_BZL = np.where(BACKWARD_Z1, ends_BZL, begins_BZL) * np.int8(SENTENCE)
        boundary_BZL[stream.opens_document(places, BACKWARD_Z1)] = DOCUMENT
        batch = {
            "tokens_BZL": np.where(BACKWARD_Z1, here_BZL, before_BZL),
            "next_BZL": np.where(BACKWARD_Z1, before_BZL, here_BZL),
            "boundary_BZL": boundary_BZL,
        }
        if self.table:
            batch["chars_BZLW"] = self.table.characters_VW.take(batch["tokens_BZL"], axis=0)
        return batch
