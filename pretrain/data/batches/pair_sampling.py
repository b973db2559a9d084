"""The sampling of sentence pairs (BERT): which sentences of which documents A and B are."""

import dataclasses
from typing import NamedTuple

import numpy as np

from pretrain.data.corpus.prepared_corpus import Corpus

MAX_SENTENCES = 1024  # of a block, the unit that a round reads


class Pairs(NamedTuple):
    """Rows [R]: where A and B begin in the corpus, their tokens, and whether B follows A."""

    a_begin: np.ndarray
    a: np.ndarray
    b_begin: np.ndarray
    b: np.ndarray
    consecutive: np.ndarray

    def take(self, index: np.ndarray) -> "Pairs":
        return Pairs(*(field[index] for field in self))


class SentenceText:
    """Documents as runs of sentences, without the <eod> that ends them; empty ones left out."""

    def __init__(self, corpus: Corpus, documents: np.ndarray):
        # Sentences go by their number in the corpus: document d has those from first[d] to before
        # last[d], and its tokens end before stop[d].
        stop = corpus.documents[documents + 1] - 1
        first = np.searchsorted(corpus.sentences, corpus.documents[documents])
        last = np.searchsorted(corpus.sentences, stop)
        full = last > first
        self.sentences = corpus.sentences
        self.first, self.last, self.stop = first[full], last[full], stop[full]

    def __len__(self) -> int:
        return len(self.first)

    def find_begin(self, document: np.ndarray, sentence: np.ndarray) -> np.ndarray:
        """Finds the token where a sentence begins, or where the document ends if it has no more."""
        return np.minimum(self.sentences[sentence], self.stop[document])

    def split_blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns (document, first sentence, last) of blocks of at most MAX_SENTENCES."""
        count = -(-(self.last - self.first) // MAX_SENTENCES)
        document = np.repeat(np.arange(len(self)), count)
        number = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)
        first = self.first[document] + number * MAX_SENTENCES
        return document, first, np.minimum(first + MAX_SENTENCES, self.last[document])


@dataclasses.dataclass(frozen=True)
class PairSampler:
    """Samples rows of a text, see `pairs.BatchLayout`.

    Attributes:
        room: tokens of A and B in a row.
    """

    text: SentenceText
    room: int
    short_seq_prob: float
    next_sentence: bool
    faithful: bool

    def sample(self, rng: np.random.Generator) -> Pairs:
        """Samples the rows of an epoch, not truncated yet."""
        targets = self._sample_targets(rng, len(self.text)) if self.faithful else None
        document, first, last = self.text.split_blocks()
        rounds, deficit = list[Pairs](), 0.0
        # Each round takes the next row of every block that has sentences left.
        while len(first):
            target = self._sample_targets(rng, len(first)) if targets is None else targets[document]
            if self.next_sentence:
                pairs, first = self._sample_pairs(rng, document, first, last, target, deficit)
            else:
                pairs, first = self._take_singles(document, first, last, target)
            rounds.append(pairs)
            deficit += len(pairs.a) / 2 - pairs.consecutive.sum()
            left = first < last
            document, first, last = document[left], first[left], last[left]
        return Pairs(*map(np.concatenate, zip(*rounds, strict=True)))

    def _sample_targets(self, rng: np.random.Generator, count: int) -> np.ndarray:
        coin, size = rng.random((2, count))
        short = 2 + (size * (self.room - 1)).astype(int)
        return np.where(coin < self.short_seq_prob, short, self.room)

    def _sample_pairs(
        self,
        rng: np.random.Generator,
        document: np.ndarray,
        first: np.ndarray,
        last: np.ndarray,
        target: np.ndarray,
        deficit: float,
    ) -> tuple[Pairs, np.ndarray]:
        # Also returned: the sentences that begin the next rows.
        where, coin, *elsewhere = rng.random((4, len(first)))
        begin = self.text.sentences[first]
        end = np.minimum(np.searchsorted(self.text.sentences, begin + target), last)
        cut = first + 1 + (where * (end - first - 1)).astype(int)
        a = self.text.find_begin(document, cut) - begin
        follows = self._sample_follows(end - first > 1, coin, deficit)
        far_begin, far = self._sample_elsewhere(document, target - a, *elsewhere)
        b = np.where(follows, self.text.find_begin(document, end) - begin - a, far)
        b_begin = np.where(follows, begin + a, far_begin)
        # Sentences that a B from elsewhere displaced begin the next row, as in the original.
        return Pairs(begin, a, b_begin, b, follows), np.where(follows, end, cut)

    def _sample_follows(self, able: np.ndarray, coin: np.ndarray, deficit: float) -> np.ndarray:
        """Samples whether B follows A; so far, `deficit` fewer than half of the rows have."""
        # After a single sentence nothing can follow: the other rows make up for those.
        odds = 0.5 if self.faithful else (deficit + len(able) / 2) / max(1, able.sum())
        return able & (coin < odds)

    def _sample_elsewhere(
        self, document: np.ndarray, size: np.ndarray, which: np.ndarray, where: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns begin and tokens of whole sentences of other documents, `size` if there are."""
        text = self.text
        other = (which * (len(text) - 1)).astype(int)
        # Never the same document: numbers from its own on move up by one.
        other += other >= document
        first, last = text.first[other], text.last[other]
        begin = text.sentences[first + (where * (last - first)).astype(int)]
        end = np.searchsorted(text.sentences, begin + np.maximum(1, size))
        return begin, text.find_begin(other, np.minimum(end, last)) - begin

    def _take_singles(
        self, document: np.ndarray, first: np.ndarray, last: np.ndarray, target: np.ndarray
    ) -> tuple[Pairs, np.ndarray]:
        """Returns rows of A alone: the sentences that fit, or one that does not."""
        begin, stop = self.text.sentences[first], self.text.find_begin(document, last)
        fit = np.searchsorted(self.text.sentences, begin + target, side="right") - 1
        end = np.where(stop - begin <= target, last, np.clip(fit, first + 1, last))
        a = self.text.find_begin(document, end) - begin
        none = np.zeros_like(a)
        return Pairs(begin, a, begin, none, none.astype(bool)), end


def truncate_pairs(rng: np.random.Generator, pairs: Pairs, room: int) -> Pairs:
    """Drops from A and B, token by token from either end, what a row has no room for."""
    a, rest = truncate_pair(pairs.a, pairs.b, room)
    b = np.minimum(pairs.b, rest)
    # A coin for each token that goes, from the front or the end, as in the original; all at once.
    front_a, front_b = (rng.binomial(n, 0.5) for n in (pairs.a - a, pairs.b - b))
    return Pairs(
        pairs.a_begin + front_a,
        a.astype(np.int32),
        pairs.b_begin + front_b,
        b.astype(np.int32),
        pairs.consecutive,
    )


def truncate_pair(a: np.ndarray, b: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts lengths to `size` in all, always from the longer one; from B's if they are equal."""
    cut = np.minimum(a, np.maximum(size - b, (size + 1) // 2))
    return cut, size - cut
