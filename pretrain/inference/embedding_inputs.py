"""Turns sentences into what a backbone reads: pieces, or the characters of words."""

import functools
from typing import Any, NamedTuple

import numpy as np

from pretrain.data.tokenizers import Tokenizer
from pretrain.data.tokenizers.character_ids import spell_words
from pretrain.inference.run import Run

SPELLED = (1024, 128, 16)  # words at once that are read from their characters


class Sentence(NamedTuple):
    """One text's number in its file, its tokens, and their vectors."""

    number: int
    tokens: list[str]
    vectors: np.ndarray  # float32 [layers, tokens, D]; of one layer [tokens, D]; pooled no tokens
    words: int
    block: int  # number of the first text of its block


# --- texts to what a backbone reads --------------------------------------------------------------


def build_reader(run: Run) -> "Pieces | Characters":
    """Builds the reader of what the backbone reads: ids, or words as characters."""
    example = run.backbone.example()
    if example.ndim == 2:
        return Pieces(run.tokenizer, run.backbone.V)
    return Characters(run.tokenizer, example.shape[2])


class Pieces:
    """Texts to the names and ids of their tokens; one that the model does not know is <unk>."""

    def __init__(self, tokenizer: Tokenizer, V: int):
        self.tokenizer, self.V = tokenizer, V

    def marks(self, ids: list[int]) -> np.ndarray:
        return np.array(ids, np.int32)

    def __call__(self, texts: list[str]) -> tuple[list[list[str]], list[np.ndarray], None]:
        ids = self.tokenizer.encode(texts)
        names = [[self.tokenizer.pieces[i] for i in row] for row in ids]
        return (
            names,
            [row if (row < self.V).all() else self._replace_unknown(row) for row in ids],
            None,
        )

    def _replace_unknown(self, ids: np.ndarray) -> np.ndarray:
        return np.where(ids < self.V, ids, self.tokenizer.special["unk"])


class Characters:
    """Texts to their words, numbers of these, and spellings by number: no word is unknown."""

    def __init__(self, tokenizer: Any, W: int):
        self.tokenizer, self.characters = tokenizer, functools.partial(spell_words, W=W)
        spelled = {name: tokenizer.pieces[i] for name, i in tokenizer.special.items()}
        self.first = {spelled["bos"]: 0, spelled["eos"]: 1}
        self.meant = dict.fromkeys(self.first, spelled["unk"])

    def marks(self, ids: list[int]) -> np.ndarray:
        return np.array([self.first[self.tokenizer.pieces[i]] for i in ids], np.int32)

    def __call__(self, texts: list[str]) -> tuple[list[list[str]], list[np.ndarray], np.ndarray]:
        words, numbers = self.tokenizer.words(texts), dict(self.first)
        ids = [
            # A word that is spelled like a mark is none.
            np.array([numbers.setdefault(self.meant.get(w, w), len(numbers)) for w in text], int)
            for text in words
        ]
        return words, ids, self.characters(list(numbers))
