"""Turns text into token ids and back, by tokenizers that are learned or published.

A tokenizer is one file here, or on the user's path, with a class `Tokenizer` of the Protocol below;
`config.corpus.tokens.name` names it, and `registry` finds it.  None is written by hand: each drives
a library.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

SPECIAL_NAMES = ("unk", "bos", "eos", "cls", "sep", "pad", "mask", "eod", "eop")
TRAITS = "tokenizer.json"  # beside the library's files: the name of the class, its fields


class Offsets(NamedTuple):
    """The tokens of a text; each stands in text[start:end], without the blanks before it.

    Attributes:
        ids: int32 [n], as `encode` returns them.
        starts, ends: int32 [n]; equal for a token that stands for blanks alone.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


class Tokenizer(Protocol):
    """Turns sentences into ids in [0, V) and back.

    One that can grow also has `add_words(texts, most)`, a tokenizer with pieces behind its own: the
    texts' `most` commonest words that it does not know or cuts.  One of whole words may also have
    `words(texts)`, lists of words as they are spelled, and `extend(texts)`, a tokenizer with all of
    the texts' other words behind its own.

    Attributes:
        V: the number of ids.
        pieces: the text of each id.
        word_start_V: bool [V], whether a word begins with this piece.
        special: ids by name, those it has of SPECIAL_NAMES; "eos" ends every sentence of a corpus,
            "eod" every document.
    """

    V: int
    pieces: list[str]
    word_start_V: np.ndarray
    special: dict[str, int]

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """Encodes each text as int32 [n]; the library's own threads share the list."""
        ...

    def offsets(self, texts: list[str]) -> list[Offsets]:
        """Encodes each text, with the place of each id in the text as it was given."""
        ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def save(self, folder: Path) -> None: ...


def fill_defaults(function: Callable, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all arguments of a function by name, defaults where `fields` has none."""
    bound = inspect.signature(function).bind(**fields)
    bound.apply_defaults()
    return bound.arguments
