"""Finds tokenizers by their names, learns them, and loads what one of them saved."""

import inspect
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from modules import plugins
from pretrain.data.tokenizers import TRAITS, Tokenizer
from pretrain.data.tokenizers.saved_files import find_damaged_file
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section

FOLDER = "pretrain.data.tokenizers"


def load_kind(name: str):
    """Loads the class of that name: `load_kind("sentencepiece")` is `sentencepiece.Tokenizer`.

    It has `settings(**fields)`, checking them and returning what the result depends on (files
    by their sha256); `learn(texts, **fields)`; and `load(folder)`.
    """
    try:
        return plugins.load(FOLDER, name, "Tokenizer").Tokenizer
    except plugins.UnknownNameError as error:
        raise UserError(f"tokens.{error}") from error


def settings(name: str, **fields: Any) -> dict[str, Any]:
    """Checks the fields of a tokenizer, and returns what the result depends on."""
    kind = load_kind(name)
    return {"name": name, **call_section("corpus.tokens", kind.settings, _select(kind, fields))}


def learn(texts: Iterator[str], name: str, **fields: Any) -> Tokenizer:
    """Learns a tokenizer from the texts, or loads a published one, as its fields say."""
    kind = load_kind(name)
    fields = _select(kind, fields)
    plugins.check_fields(kind.learn, fields, texts)
    return kind.learn(texts, **fields)


def _select(kind: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves out `extend`, which recipes have, of a tokenizer that takes none; UserError if set."""
    if "extend" in inspect.signature(kind.settings).parameters:
        return dict(fields)
    if fields.get("extend"):
        raise UserError(
            f"tokens.extend={fields['extend']} adds words to the vocabulary of the run that init "
            "names: this one is the recipe's own (without init, or by init_tokens='recipe')"
        )
    return {name: value for name, value in fields.items() if name != "extend"}


def load(folder: Path) -> Tokenizer:
    """Loads what `save` wrote.

    Raises:
        UserError: nothing was saved there, or a file is damaged.
    """
    if (broken := find_damaged_file(folder)) and (folder / TRAITS).exists():
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
    loader = load_kind(name)  # its own error names the kinds there are
    try:
        tokenizer = loader.load(folder)
        tokenizer.encode(["a"])  # some notice only then that they have no model
        return tokenizer
    except UserError:
        raise
    except Exception as error:  # the libraries raise any type
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{folder}: this is no tokenizer of the kind {name}: {reason}") from error
