"""Pairs (BERT): two runs of sentences, A and B, where B follows A or comes from elsewhere."""

import functools
import threading
from typing import Any, NamedTuple

import numpy as np

from pretrain.data.batches import Batch
from pretrain.data.batches.document_stream import draws, fingerprint, shuffled
from pretrain.data.batches.lanes import truncated
from pretrain.data.corpus.format import Corpus
from pretrain.runtime.errors import UserError

INSTANCES, ORDER = range(2)  # what randomness is for
LONGEST = 1024  # sentences of a block


class Instances(NamedTuple):
    """Of each row: where A and B begin in the corpus, their tokens, and whether B follows A."""

    a_begin: np.ndarray
    a: np.ndarray
    b_begin: np.ndarray
    b: np.ndarray
    consecutive: np.ndarray


class Text:
    """Documents as runs of sentences, without the <eod> that ends them; empty ones left out.

    Sentences go by their number in the corpus: document d has those from first[d] to before
    last[d], and its tokens end before stop[d].
    """

    def __init__(self, corpus: Corpus, documents: np.ndarray):
        stop = corpus.documents[documents + 1] - 1
        first = np.searchsorted(corpus.sentences, corpus.documents[documents])
        last = np.searchsorted(corpus.sentences, stop)
        full = last > first
        self.sentences = corpus.sentences
        self.first, self.last, self.stop = first[full], last[full], stop[full]

    def __len__(self) -> int:
        return len(self.first)

    def begin(self, document: np.ndarray, sentence: np.ndarray) -> np.ndarray:
        """The token where a sentence begins, or where the document ends if it has no more."""
        return np.minimum(self.sentences[sentence], self.stop[document])

    def blocks(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(document, first sentence, last) of blocks of at most LONGEST sentences."""
        count = -(-(self.last - self.first) // LONGEST)
        document = np.repeat(np.arange(len(self)), count)
        number = np.arange(len(document)) - np.repeat(np.cumsum(count) - count, count)
        first = self.first[document] + number * LONGEST
        return document, first, np.minimum(first + LONGEST, self.last[document])


class Pairs:
    """Rows of <cls> A <sep> B <sep>, then <pad>: L in all.

    From a document, whole sentences are taken until they fill a row, or, for a share
    `short_seq_prob` of the rows, a length drawn from 2 to L - 3.  A is a random number of them from
    the first on.  B is the rest; or it is sentences of another document, from a random one on, and
    the rest begins the next row.  What does not fit is dropped from the longer of the two, token by
    token from either end (Devlin et al., 2019, A.2; create_pretraining_data.py).

    A single sentence cannot be followed by its rest, so a fair coin makes fewer than half of the
    pairs real; here the coin of the others makes up for it.  `faithful` tosses a fair coin, and
    draws short lengths once for each document, so that short rows are more than their share, as
    the original does.  Without `next_sentence` a row is <cls> A <sep>, as many whole sentences of
    one document as fit (DOC-SENTENCES of Liu et al., 2019).  Of a sentence longer than a row only
    a part is seen.  Documents of more than 1024 sentences are read as if they were several, but
    for where B may come from.

    A batch holds `tokens_BL`, `segments_BL` int32 (1: B and its <sep>; 0: the others);
    `valid_BL` (no padding), `word_starts_BL` bool; `weight_B` float32; `consecutive_B` int32
    (only `next_sentence`).

    Rows are drawn and shuffled anew each epoch, and there are not always as many: every epoch is
    as long as the first, so that a few rows of another are left out or come twice.  Without
    `shuffle` every row of the first is read once, in the corpus's order.

    Raises:
        UserError: the text has fewer rows than a batch or no other document to take B from, the
            vocabulary lacks a special token, or the fields do not fit.
    """

    def __init__(
        self,
        corpus: Corpus,
        documents: np.ndarray,
        *,
        B: int,
        L: int,
        short_seq_prob: float = 0.1,
        next_sentence: bool = True,
        faithful: bool = False,
        seed: int = 0,
        shuffle: bool = True,
    ):
        self.corpus, self.documents, self.shuffle = corpus, documents, shuffle
        self.B, self.L, self.short_seq_prob, self.seed = B, L, short_seq_prob, seed
        self.next_sentence, self.faithful = next_sentence, faithful
        self.room = L - 2 - next_sentence  # tokens of A and B
        self._check_fields()
        self.text = Text(corpus, documents)
        self._check_text()
        self._cached = functools.lru_cache(maxsize=2)(self._shuffled)
        self._lock = threading.Lock()
        count = len(self.instances(0).a)
        self._check_count(count)
        self.steps_per_epoch = count // B if shuffle else -(-count // B)

    def _check_fields(self) -> None:
        special = self.corpus.tokenizer.special
        if missing := [f"<{name}>" for name in ("cls", "sep", "pad") if name not in special]:
            raise UserError(f"this vocabulary has no {' and no '.join(missing)}, which pairs need")
        if self.L < 5:
            raise UserError(f"L={self.L}: a row is two segments and 3 special tokens, 5 or more")
        if self.B < 1:
            raise UserError(f"B={self.B}: a batch has rows")
        if not 0 <= self.short_seq_prob <= 1:
            raise UserError(
                f"short_seq_prob={self.short_seq_prob}: it is a share of the rows, from 0 to 1"
            )

    def _check_text(self) -> None:
        if len(self.text) <= self.next_sentence:
            name = "training" if self.shuffle else "held-out"
            raise UserError(
                f"{name} split has {len(self.text)} documents with text but pairs need "
                f"{1 + self.next_sentence} or more: more files, or documents='blank', give it more"
            )

    def _check_count(self, count: int) -> None:
        if self.shuffle and count < self.B:
            raise UserError(
                f"training split makes {count} rows of L={self.L} but batch has {self.B}: "
                "use a smaller B or L, or more text in this split"
            )

    def fingerprint(self) -> dict[str, Any]:
        """What a position depends on: compare it before going on from one."""
        return fingerprint(
            self, "B", "L", "short_seq_prob", "next_sentence", "faithful", "seed", "shuffle"
        )

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        """These rows of batch number `step`, counted from 0 over all epochs."""
        epoch, k = divmod(step, self.steps_per_epoch)
        instances = self.instances(epoch)
        row_B = k * self.B + np.arange(self.B)[rows]
        text_B = np.ones(len(row_B), bool) if self.shuffle else row_B < len(instances.a)
        chosen = Instances(*(field[row_B % len(field)] for field in instances))
        batch = self._rows(chosen, text_B) | {"weight_B": text_B.astype(np.float32)}
        if self.next_sentence:
            batch["consecutive_B"] = (chosen.consecutive & text_B).astype(np.int32)
        return batch

    def _rows(self, chosen: Instances, text_B: np.ndarray) -> Batch:
        """The rows laid out: <cls>, A, <sep>, B, <sep>; nothing but padding where no text is."""
        a_begin_B1, a_B1, b_begin_B1, b_B1, _ = (field[:, None] for field in chosen)
        column = np.arange(self.L)
        end_B1 = (a_B1 + b_B1 + self.L - self.room) * text_B[:, None]
        valid_BL = column < end_B1
        in_b_BL = (column > a_B1 + 1) & valid_BL
        position_BL = np.where(in_b_BL, b_begin_B1 - a_B1 - 2, a_begin_B1 - 1) + column
        special = self.corpus.tokenizer.special
        tokens_BL = self.corpus.tokens.take(position_BL, mode="clip").astype(np.int32)
        tokens_BL[:, 0] = special["cls"]
        tokens_BL[(column == a_B1 + 1) | (column == end_B1 - 1)] = special["sep"]
        tokens_BL[~valid_BL] = special["pad"]
        return {
            "tokens_BL": tokens_BL,
            "segments_BL": in_b_BL.astype(np.int32),
            "valid_BL": valid_BL,
            "word_starts_BL": self.corpus.tokenizer.word_start_V[tokens_BL],
        }

    def instances(self, epoch: int) -> Instances:
        """All rows of an epoch, in the order in which they are read."""
        with self._lock:  # threads that begin an epoch together draw it once
            return self._cached(epoch)

    def _shuffled(self, epoch: int) -> Instances:
        drawn = self._drawn(epoch)
        order = np.argsort(drawn.a_begin, kind="stable")
        if self.shuffle:
            order = shuffled(order, self.seed, ORDER, epoch)
        return Instances(*(field[order] for field in drawn))

    def _drawn(self, epoch: int) -> Instances:
        """Each round takes the next row of every block that has sentences left."""
        rng = draws(self.seed, INSTANCES, epoch)
        fixed = self._targets(rng, len(self.text)) if self.faithful else None
        document, at, last = self.text.blocks()
        rounds, owed = list[Instances](), 0.0
        while len(at):
            target = self._targets(rng, len(at)) if fixed is None else fixed[document]
            if self.next_sentence:
                drawn, at = self._pair(rng, document, at, last, target, owed)
            else:
                drawn, at = self._single(document, at, last, target)
            rounds.append(drawn)
            owed += len(drawn.a) / 2 - drawn.consecutive.sum()
            left = at < last
            document, at, last = document[left], at[left], last[left]
        joined = [np.concatenate(fields) for fields in zip(*rounds, strict=True)]
        return self._cut(rng, Instances(*joined))

    def _targets(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """How many tokens rows shall have."""
        coin, size = rng.random((2, count))
        return np.where(
            coin < self.short_seq_prob, 2 + (size * (self.room - 1)).astype(int), self.room
        )

    def _pair(
        self,
        rng: np.random.Generator,
        document: np.ndarray,
        at: np.ndarray,
        last: np.ndarray,
        target: np.ndarray,
        owed: float,
    ) -> tuple[Instances, np.ndarray]:
        """Rows from these sentences on, and the sentences that begin the next ones."""
        where, coin, *elsewhere = rng.random((4, len(at)))
        begin = self.text.sentences[at]
        end = np.minimum(np.searchsorted(self.text.sentences, begin + target), last)
        cut = at + 1 + (where * (end - at - 1)).astype(int)
        a = self.text.begin(document, cut) - begin
        follows = self._follow(end - at > 1, coin, owed)
        far_begin, far = self._elsewhere(document, target - a, *elsewhere)
        b = np.where(follows, self.text.begin(document, end) - begin - a, far)
        b_begin = np.where(follows, begin + a, far_begin)
        return Instances(begin, a, b_begin, b, follows), np.where(follows, end, cut)

    def _follow(self, able: np.ndarray, coin: np.ndarray, owed: float) -> np.ndarray:
        """Whether B follows A; so many are `owed` to half of the rows so far."""
        odds = 0.5 if self.faithful else (owed + len(able) / 2) / max(1, able.sum())
        return able & (coin < odds)

    def _elsewhere(
        self, document: np.ndarray, size: np.ndarray, which: np.ndarray, where: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Whole sentences of other documents, one or more, of `size` tokens if they have them."""
        text = self.text
        other = (which * (len(text) - 1)).astype(int)
        other += other >= document
        first, last = text.first[other], text.last[other]
        begin = text.sentences[first + (where * (last - first)).astype(int)]
        end = np.searchsorted(text.sentences, begin + np.maximum(1, size))
        return begin, text.begin(other, np.minimum(end, last)) - begin

    def _single(
        self, document: np.ndarray, at: np.ndarray, last: np.ndarray, target: np.ndarray
    ) -> tuple[Instances, np.ndarray]:
        """Rows of A alone: the sentences that fit, or one that does not."""
        begin, stop = self.text.sentences[at], self.text.begin(document, last)
        fit = np.searchsorted(self.text.sentences, begin + target, side="right") - 1
        end = np.where(stop - begin <= target, last, np.clip(fit, at + 1, last))
        a = self.text.begin(document, end) - begin
        none = np.zeros_like(a)
        return Instances(begin, a, begin, none, none.astype(bool)), end

    def _cut(self, rng: np.random.Generator, drawn: Instances) -> Instances:
        """As much of A and B as a row has room for."""
        kept_a, rest = truncated(drawn.a, drawn.b, self.room)
        kept_b = np.minimum(drawn.b, rest)
        front_a, front_b = (
            rng.binomial(dropped, 0.5) for dropped in (drawn.a - kept_a, drawn.b - kept_b)
        )
        return Instances(
            drawn.a_begin + front_a,
            kept_a.astype(np.int32),
            drawn.b_begin + front_b,
            kept_b.astype(np.int32),
            drawn.consecutive,
        )
