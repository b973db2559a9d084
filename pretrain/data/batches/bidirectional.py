"""Bidirectional (ELMo): rows go on from batch to batch, from both ends of the text at once."""

import functools
from typing import Any

import numpy as np

from pretrain.data.batches import Batch
from pretrain.data.batches.document_stream import Stream, check_windows, fingerprint, shuffled
from pretrain.data.corpus.format import Corpus
from pretrain.data.tokenizers.character_ids import table
from pretrain.runtime.errors import UserError

DOCUMENT, SENTENCE = 2, 1  # what opens at a token, in reading order; 0: neither
BACKWARD_Z1 = np.array([[False], [True]])


class Bidirectional:
    """Rows of L tokens to be read and L to be told from them, forwards (Z=0) and backwards (Z=1).

    The text of an epoch is its documents joined in an order drawn anew from (seed, epoch); each
    row reads its own share of it, L tokens further with each step: forwards from the first token
    on, backwards from the last, so the two directions of a row are at different places
    (as the two data sets of bilm-tf: Peters et al., 2018; bilm/data.py).

    A sentence w1 .. wn </S> is told forwards as w1 .. wn </S> from <S> w1 .. wn, and backwards as
    wn .. w1 <S> from </S> wn .. w1: n + 1 predictions, none from another sentence's word.

    A batch holds `tokens_BZL` int32, what is read, each direction in its own order; `next_BZL`
    int32, what is to be told; `boundary_BZL` int8 (2: with this token a document begins in reading
    order, or the row does not continue the one before; 1: a sentence; 0: neither); `predict_BZL`
    bool (False beyond the text); `weight_B` float32; with `characters`, as many for each word:
    `chars_BZLW` uint16, what is read as `character_ids.characters` spells it.

    Without `shuffle` every token is told once in either direction, in the corpus's order, and rows
    that have none left weigh 0.  With it, windows that do not fill a batch wait for the next
    epoch's order.

    Raises:
        UserError: the text has fewer windows than the batch has rows, its tokens have no <S> and
            </S>, or the fields do not fit.
    """

    def __init__(
        self,
        corpus: Corpus,
        documents: np.ndarray,
        *,
        B: int,
        L: int,
        characters: int = 50,
        seed: int = 0,
        shuffle: bool = True,
    ):
        self.corpus, self.documents, self.shuffle = corpus, documents, shuffle
        self.B, self.L, self.characters, self.seed = B, L, characters, seed
        self._check_fields()
        self.size = int((corpus.documents[documents + 1] - corpus.documents[documents]).sum())
        self.windows = self.size // L if shuffle else -(-self.size // L)
        check_windows(self, L, wanted=B if shuffle else 1, field="L")
        self.steps_per_epoch = self.windows // B if shuffle else -(-self.windows // B)
        self.stream = functools.lru_cache(maxsize=2)(self._stream)
        self.table = table(corpus.tokenizer, characters) if characters else None

    def _check_fields(self) -> None:
        if self.B < 1 or self.L < 1:
            raise UserError(f"B={self.B}, L={self.L}: a batch needs a row, and a row a token")
        if missing := {"bos", "eos"} - set(self.corpus.tokenizer.special):
            names = " and no ".join(f'"{name}"' for name in sorted(missing))
            raise UserError(f"this corpus has no {names}: it needs corpus.tokens.name='words'")

    def fingerprint(self) -> dict[str, Any]:
        """What a position depends on: compare it before going on from one."""
        return fingerprint(self, "B", "L", "characters", "seed", "shuffle")

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """These rows of batch number `step`, counted from 0 over all epochs."""
        epoch, k = divmod(step, self.steps_per_epoch)
        window_B1 = np.arange(self.B)[rows, None] * self.steps_per_epoch + k
        position_BL = window_B1 * self.L + np.arange(self.L)
        batch = self._read(self.stream(epoch), position_BL)
        if k == 0:
            batch["boundary_BZL"][:, :, 0] = DOCUMENT
        batch["predict_BZL"] = np.repeat(position_BL[:, None] < self.size, 2, axis=1)
        batch["weight_B"] = (window_B1 < self.windows)[:, 0].astype(np.float32)
        return batch

    def _stream(self, epoch: int) -> Stream:
        order = self.documents
        return Stream(self.corpus, shuffled(order, self.seed, epoch) if self.shuffle else order)

    def _read(self, stream: Stream, position_BL: np.ndarray) -> Batch:
        """Both directions: at a token, one reads what is before it, and the other tells that."""
        special, tokens = self.corpus.tokenizer.special, self.corpus.tokens
        places = stream.find(position_BL[:, None], BACKWARD_Z1)
        here_BZL = tokens[places.corpus].astype(np.int32)
        before_BZL = tokens[places.corpus - 1].astype(np.int32)  # of the first: the last, </S>
        begins_BZL, ends_BZL = before_BZL == special["eos"], here_BZL == special["eos"]
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
