"""Documents joined to one endless stream, readable from either end at any place."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from pretrain.data.corpus.format import Corpus
from pretrain.runtime.errors import UserError


def draws(*key: int) -> np.random.Generator:
    """Randomness that is a function of the key alone."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def shuffled(documents: np.ndarray, *key: int) -> np.ndarray:
    """In an order of the key's; by sorting, as NumPy may change its `permutation` one day."""
    return documents[np.argsort(draws(*key).random(len(documents)), kind="stable")]


def fingerprint(layout: Any, *fields: str) -> dict[str, Any]:
    """What a position in a layout depends on: its text, its documents and these fields."""
    documents = np.ascontiguousarray(layout.documents, np.int64)
    return dict(
        layout=type(layout).__name__.lower(),
        corpus=layout.corpus.fingerprint,
        documents=hashlib.sha256(documents.data).hexdigest(),
        **{name: getattr(layout, name) for name in fields},
    )


def check_windows(layout: Any, size: int, *, wanted: int, field: str) -> None:
    """UserError if a layout has fewer than `wanted` windows of `size` tokens: lower its `field`."""
    if layout.windows < wanted:
        name = "training" if layout.shuffle else "held-out"
        raise UserError(
            f"{name} split has {layout.windows} windows of {size} tokens but batch has {layout.B} "
            f"rows: use a smaller B or {field}, or more text in this split"
        )


@dataclass(frozen=True, eq=False)
class Places:
    """Where tokens are: in the stream, read forwards, and in the corpus."""

    document: np.ndarray  # which of the stream's
    stream: np.ndarray
    corpus: np.ndarray


class Stream:
    """The documents in this order, read round and round.

    A position is the number of tokens read before; read backwards, position 0 is the last token.
    Methods take positions [B, n] and whether each row is read backwards [B, 1].
    """

    def __init__(self, corpus: Corpus, documents: np.ndarray):
        begins, ends = corpus.documents[documents], corpus.documents[documents + 1]
        self.corpus = corpus
        self.begins = np.concatenate([[0], np.cumsum(ends - begins)])  # in the stream
        self.shift = begins - self.begins[:-1]  # from the stream to the corpus
        self.size = int(self.begins[-1])

    def find(self, position_BN: np.ndarray, backward_B1: np.ndarray) -> Places:
        position_BN = position_BN % self.size
        stream_BN = np.where(backward_B1, self.size - 1 - position_BN, position_BN)
        document_BN = np.searchsorted(self.begins, stream_BN, side="right") - 1
        return Places(document_BN, stream_BN, stream_BN + self.shift[document_BN])

    def opens_document(self, places: Places, backward_B1: np.ndarray) -> np.ndarray:
        """Whether a document begins here in reading order: at its <eod> if read backwards."""
        first_BN = self.begins[places.document]
        last_BN = self.begins[places.document + 1] - 1
        return places.stream == np.where(backward_B1, last_BN, first_BN)

    def opens_sentence(self, position_BN: np.ndarray, backward_B1: np.ndarray) -> np.ndarray:
        """Whether a sentence begins here in reading order: at its last token if read backwards."""
        next_BN = self.find(position_BN, backward_B1).corpus + backward_B1
        sentences = self.corpus.sentences
        return sentences[np.searchsorted(sentences, next_BN)] == next_BN

    def sentence_of(self, position_B1: np.ndarray, backward_B1: np.ndarray) -> np.ndarray:
        """The position [B, 1] where the sentence around this one begins in reading order."""
        place_B1 = self.find(position_B1, backward_B1).corpus
        sentences = self.corpus.sentences
        after_B1 = np.searchsorted(sentences, place_B1, side="right")
        first_B1, last_B1 = sentences[after_B1 - 1], sentences[after_B1] - 1
        return position_B1 - np.where(backward_B1, last_B1 - place_B1, place_B1 - first_B1)
