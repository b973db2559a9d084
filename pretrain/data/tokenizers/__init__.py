"""Turns text into token ids and back, by tokenizers that are learned or published.

A tokenizer is one file here, or on the user's path, with a class `Tokenizer` of the Protocol below;
`config.corpus.tokens.name` names it.  None is written by hand: each drives a library.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from modules import plugins
from pretrain.data.tokenizers.offsets import Offsets
from pretrain.data.tokenizers.saved_files import damaged_file, digest
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section

__all__ = ["damaged_file", "digest"]

SPECIAL_NAMES = ("unk", "bos", "eos", "cls", "sep", "pad", "mask", "eod", "eop")
TRAITS = "tokenizer.json"  # beside the library's files: the name of the class, its fields


class Tokenizer(Protocol):
    """Turns sentences into ids in [0, V) and back.

    A tokenizer of whole words may also have `words(texts)`, lists of words as they are spelled,
    and `extend(texts)`, a tokenizer with the texts' other words behind its own.

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


def kind(name: str):
    """Loads the class of that name: `kind("sentencepiece")` is `sentencepiece.Tokenizer`.

    It has `settings(**fields)`, checking them and returning what the result depends on (files
    by their sha256); `learn(texts, **fields)`; and `load(folder)`.
    """
    try:
        return plugins.load(__name__, name, "Tokenizer").Tokenizer
    except plugins.UnknownNameError as error:
        raise UserError(f"tokens.{error}") from error


def settings(name: str, **fields: Any) -> dict[str, Any]:
    """Checks the fields of a tokenizer, and returns what the result depends on."""
    return {"name": name, **call_section("corpus.tokens", kind(name).settings, fields)}


def fill_defaults(function: Callable, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns all arguments of a function by name, defaults where `fields` has none."""
    bound = inspect.signature(function).bind(**fields)
    bound.apply_defaults()
    return bound.arguments


def learn(texts: Iterator[str], name: str, **fields: Any) -> Tokenizer:
    """Learns a tokenizer from the texts, or loads a published one, as its fields say."""
    learn_kind = kind(name).learn
    plugins.check_fields(learn_kind, fields, texts)
    return learn_kind(texts, **fields)


def load(folder: Path) -> Tokenizer:
    """Loads what `save` wrote.

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
    loader = kind(name)  # its own error names the kinds there are
    try:
        tokenizer = loader.load(folder)
        tokenizer.encode(["a"])  # some notice only then that they have no model
        return tokenizer
    except UserError:
        raise
    except Exception as error:  # the libraries raise any type
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{folder}: this is no tokenizer of the kind {name}: {reason}") from error
