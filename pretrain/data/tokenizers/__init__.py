"""Tokenizers: text to token ids and back; learned from the corpus, or published files loaded.

Adding one is one file here with a class `Tokenizer` that keeps the contract below, named by
`config.corpus.tokens.name`.  None is written by hand: each drives a library.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from modules import plugins
from pretrain.data.tokenizers.offsets import Offsets
from pretrain.data.tokenizers.saved_files import damaged_file, digest
from pretrain.runtime.errors import UserError

__all__ = ["damaged_file", "digest"]

SPECIAL_NAMES = ("unk", "bos", "eos", "cls", "sep", "pad", "mask", "eod", "eop")
TRAITS = "tokenizer.json"  # beside the library's own files: the class and how to clean the text


class Tokenizer(Protocol):
    """Sentences to ids in [0, V) and back.

    One of whole words may also have `words(texts)`, lists of words as they are spelled, and
    `extended(texts)`, itself with the texts' other words behind its own.
    """

    V: int
    pieces: list[str]
    word_start_V: np.ndarray  # bool: a word begins with this piece
    special: dict[str, int]  # of SPECIAL_NAMES, those it has; "eos" ends every sentence of a
    #   corpus, "eod" every document

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """One int32 array of ids per text; the library's own threads share the list."""
        ...

    def offsets(self, texts: list[str]) -> list[Offsets]:
        """The same ids, and where in each text they stand, whatever it was cleaned of."""
        ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def save(self, folder: Path) -> None: ...


def kind(name: str):
    """The class of that name: `kind("sentencepiece")` is `sentencepiece.Tokenizer`.

    It has `settings(**fields)`, checking them and returning what the result depends on (files
    by their sha256); `learn(texts, **fields)`; and `load(folder)`.
    """
    try:
        return plugins.load(__name__, name, "Tokenizer").Tokenizer
    except plugins.UnknownNameError as error:
        raise UserError(f"tokens.{error}") from error


def settings(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, **kind(name).settings(**fields)}


def learn(texts: Iterator[str], name: str, **fields: Any) -> Tokenizer:
    """A tokenizer learned from the texts, or published: whichever its fields ask for."""
    return kind(name).learn(texts, **fields)


def load(folder: Path) -> Tokenizer:
    """What `save` wrote.

    Raises:
        UserError: nothing was saved there, or a file is damaged.
    """
    if (broken := damaged_file(folder)) and (folder / TRAITS).exists():
        raise UserError(
            f"{folder / broken} is damaged: it is not what was saved there; take the folder from "
            "a copy, or resume the run that it belongs to, which writes it again"
        )
    try:
        name = json.loads((folder / TRAITS).read_text())["name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: no tokenizer was saved there") from error
    if not isinstance(name, str):
        raise UserError(f"{folder}: no tokenizer was saved there")
    loader = kind(name)
    try:
        tokenizer = loader.load(folder)
        tokenizer.encode(["a"])  # some notice only then that they have no model
        return tokenizer
    except UserError:
        raise
    except Exception as error:  # the libraries raise what they like
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{folder}: this is no tokenizer of the kind {name}: {reason}") from error
