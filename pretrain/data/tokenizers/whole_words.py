"""Gives words that are cut into pieces a piece of their own, behind all that there are."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tokenizers as library
from tokenizers import models, trainers

from pretrain.runtime.errors import UserError

UNKNOWN = "\n"  # the name of all other words, which no text has: it ends a word


class Span(NamedTuple):
    """The ids of a text, and the characters [start, end) of each: [n] and [n, 2]."""

    ids: np.ndarray
    places: np.ndarray


class WholeWords:
    """Encodes texts by a tokenizer, but for some words, whose pieces become one id.

    The pieces of all other words stay as they are, also where they begin with such a word.

    Attributes:
        cut: the tokenizer, which cuts words into pieces.
        ids: id by word, as `cut` finds words in text.
    """

    def __init__(self, cut: library.Tokenizer, ids: Mapping[str, int]):
        self.cut = cut
        self.unknown = max(ids.values()) + 1
        self.find = copy_rules(cut)
        self.find.model = models.WordLevel({**ids, UNKNOWN: self.unknown}, unk_token=UNKNOWN)

    def encode(self, texts: list[str]) -> Iterator[Span]:
        """Yields the ids of each text."""
        # One id a word from the one, some pieces a word from the other.
        both = (x.encode_batch(texts, add_special_tokens=False) for x in (self.cut, self.find))
        for pieces, words in zip(*both, strict=True):
            yield self._join(pieces, words)

    def _join(self, pieces: library.Encoding, words: library.Encoding) -> Span:
        word_n = np.array(pieces.word_ids, np.int64)
        ids_n, places_n2 = _read(pieces)
        new_w, places_w2 = _read(words)
        is_new_n = (new_w != self.unknown)[word_n]
        is_first_n = np.diff(word_n, prepend=-1) > 0
        ids_n = np.where(is_new_n, new_w[word_n], ids_n)
        places_n2 = np.where(is_new_n[:, None], places_w2[word_n], places_n2)
        # The first piece of a word with its own id stays: it has the word's id and place now.
        taken_n = is_first_n | ~is_new_n
        return Span(ids_n[taken_n], places_n2[taken_n])


def _read(encoding: library.Encoding) -> Span:
    places_n2 = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    return Span(np.array(encoding.ids, np.int32), places_n2)


def copy_rules(cut: library.Tokenizer) -> library.Tokenizer:
    """Makes a tokenizer without words that finds words in text like another."""
    blank = library.Tokenizer(models.WordLevel({}, unk_token=UNKNOWN))
    blank.pre_tokenizer = cut.pre_tokenizer
    if cut.normalizer is not None:
        blank.normalizer = cut.normalizer
    return blank


def rank_words(texts: Iterable[str], cut: library.Tokenizer) -> list[str]:
    """Lists the words that a tokenizer finds in texts, the commonest first."""
    counter = copy_rules(cut)
    # The trainer's own default would drop the rarer words.
    everything = trainers.WordLevelTrainer(vocab_size=1 << 48, show_progress=False)
    counter.train_from_iterator(texts, everything)
    ids = counter.get_vocab(with_added_tokens=False)
    # In the trainer's order: of words equally frequent the lesser UTF-8 is first.
    return sorted(ids, key=ids.__getitem__)


def is_cut(word: str, cut: library.Tokenizer, unknown: int | None = None) -> bool:
    """Checks whether a tokenizer cuts a word into several pieces, or knows it not at all.

    Args:
        unknown: the id of what is unknown; None: there is none.
    """
    return not is_known([piece.id for piece in cut.model.tokenize(word)], unknown)


def is_known(ids: Sequence[int], unknown: int | None) -> bool:
    """Checks whether the ids of a word are one alone, and not that of what is unknown."""
    return len(ids) == 1 and ids[0] != unknown


def has_letter(word: str) -> bool:
    """Checks that a word is no number and no mark."""
    return any(character.isalpha() for character in word)


def select_words(words: Iterable[str], is_new: Callable[[str], bool], most: int) -> list[str]:
    """Selects the first new words.

    Raises:
        UserError: there are fewer.
    """
    new = list(itertools.islice(filter(is_new, words), most))
    if len(new) < most:
        raise UserError(
            f"tokens.extend={most}: the text has {len(new)} words that the vocabulary lacks: "
            f"set it to {len(new)} at most"
        )
    return new
