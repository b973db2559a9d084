"""Judges sentence vectors: reads sentences, scores what they give, and draws it."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class SentenceReader(Protocol):
    """A way from sentences to vectors.

    Attributes:
        name: of the run or file.
        averages: each vector is a mean of tokens, some of which can be left out.
    """

    name: str
    averages: bool

    def list_tokens(self, texts: Sequence[str]) -> list[list[str]]:
        """Lists what is averaged of each text, in any order of the texts."""
        ...

    def read(self, texts: Sequence[str], left_out: Sequence[frozenset[str]]) -> np.ndarray:
        """Computes vectors, [K, texts, D] float32 for K sets of tokens to leave out.

        Without `averages` there is one set, and it is empty.
        """
        ...
