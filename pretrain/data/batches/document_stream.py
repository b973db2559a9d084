"""Documents joined to one endless stream, readable from either end at any place."""

import functools
from dataclasses import dataclass

import numpy as np

from pretrain.data.corpus.prepared_corpus import Corpus


@dataclass(frozen=True, eq=False)
class Places:
    """Places of tokens: in the stream, read forwards, and in the corpus."""

    document: np.ndarray  # which of the stream's
    stream: np.ndarray
    corpus: np.ndarray

    def drop_first(self) -> "Places":
        """Returns the places of each row but its first."""
        return Places(*(x[:, 1:] for x in (self.document, self.stream, self.corpus)))


class Stream:
    """The documents in this order, read round and round.

    A position is the number of tokens read before; read backwards, position 0 is the last token.
    Methods take positions [B, n] and whether each row is read backwards [B, 1].
    """

    def __init__(self, corpus: Corpus, documents: np.ndarray):
        begins, ends = corpus.documents[documents], corpus.documents[documents + 1]
        self.corpus, self.documents = corpus, documents
        self.begins = np.concatenate([[0], np.cumsum(ends - begins)])  # in the stream
        self.shift = begins - self.begins[:-1]  # from the stream to the corpus
        self.size = int(self.begins[-1])

    def find(self, position_BN: np.ndarray, backward_B1: np.ndarray) -> Places:
        """Finds the tokens at these positions."""
        position_BN = position_BN % self.size
        stream_BN = np.where(backward_B1, self.size - 1 - position_BN, position_BN)
        # Documents without a token begin where the next does: the last of them is the one.
        document_BN = np.searchsorted(self.begins, stream_BN, side="right") - 1
        return Places(document_BN, stream_BN, stream_BN + self.shift[document_BN])

    def count_units(self, places: Places, mask_BL: np.ndarray) -> dict[str, np.ndarray]:
        """Counts original words and bytes of some tokens, `words_B` and `bytes_B`, float32."""
        return {
            # The rates are fractions: they are rounded to float32 once, as a sum.
            name: np.where(mask_BL, rate[places.document], 0.0).sum(axis=1).astype(np.float32)
            for name, rate in self._rates.items()
        }

    @functools.cached_property
    def _rates(self) -> dict[str, np.ndarray]:
        """Spreads each document's words and bytes evenly over its tokens."""
        units = {"words_B": self.corpus.words, "bytes_B": self.corpus.bytes}
        sizes = np.maximum(np.diff(self.begins), 1)
        return {name: x[self.documents] / sizes for name, x in units.items()}

    def opens_document(self, places: Places, backward_B1: np.ndarray) -> np.ndarray:
        """Marks where a document begins in reading order: at its <eod> if read backwards."""
        first_BN = self.begins[places.document]
        last_BN = self.begins[places.document + 1] - 1
        return places.stream == np.where(backward_B1, last_BN, first_BN)

    def opens_sentence(self, position_BN: np.ndarray, backward_B1: np.ndarray) -> np.ndarray:
        """Marks where a sentence begins in reading order: at its last token if read backwards."""
        # Read backwards, a sentence begins before the place where the next one does.
        next_BN = self.find(position_BN, backward_B1).corpus + backward_B1
        sentences = self.corpus.sentences
        return sentences[np.searchsorted(sentences, next_BN)] == next_BN

    def find_sentence(self, position_B1: np.ndarray, backward_B1: np.ndarray) -> np.ndarray:
        """Finds the position [B, 1] where the sentence around this one begins in reading order."""
        place_B1 = self.find(position_B1, backward_B1).corpus
        sentences = self.corpus.sentences
        after_B1 = np.searchsorted(sentences, place_B1, side="right")
        first_B1, last_B1 = sentences[after_B1 - 1], sentences[after_B1] - 1
        return position_B1 - np.where(backward_B1, last_B1 - place_B1, place_B1 - first_B1)
