"""Reads tokenizer.json, the one file in which Hugging Face's libraries save a tokenizer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pretrain.runtime.errors import UserError

NAME = "tokenizer.json"
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of an added piece


@dataclass(frozen=True)
class TokenizerJson:
    """The content of a tokenizer.json, whose parts are checked as they are read.

    Attributes:
        content: the whole object.
        where: the file, for errors.
    """

    content: Mapping[str, Any]
    where: str | Path

    def read_part(self, name: str, kind: str) -> dict[str, Any] | None:
        """Reads the normalizer or the like, which must be of this kind; None if it is not written.

        Raises:
            UserError: it is of another kind, or none.
        """
        part = self.content.get(name, missing := {"type": kind})
        if not isinstance(part, dict) or part.get("type") != kind:
            other = part.get("type") if isinstance(part, dict) else part
            raise UserError(
                f"{self.where}: {name} is {other!r}, and only {kind} can be computed here"
            )
        return None if part is missing else part

    def read_model(self, kind: str) -> dict[str, Any]:
        """Reads the model, which must be of this kind ("BPE"), or not say its own.

        Raises:
            UserError: it is of another kind, or none.
        """
        model = self.content.get("model")
        if not isinstance(model, dict):
            raise UserError(f"{self.where}: is no tokenizer.json: it has no model")
        if (other := model.get("type", kind)) != kind:
            raise UserError(f"{self.where}: is no {kind} tokenizer: its model is {other!r}")
        return model

    def read_pieces(self, kind: str) -> list[str]:
        """Reads the pieces of a model of this kind, by their ids; added ones not.

        Raises:
            UserError: there are none, or their ids are not 0, 1, 2 ...
        """
        ids = self._read_ids(kind)
        numbers = list(ids.values())
        # True and 1 are equal to Python, and would be two pieces of one id.
        is_whole = {*map(type, numbers)} == {int} and sorted(numbers) == [*range(len(numbers))]
        if not is_whole:
            raise UserError(f"{self.where}: its vocabulary has no ids 0, 1, 2 ...")
        return sorted(ids, key=ids.__getitem__)

    def read_merges(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """Reads a BPE: pieces with their ids, added ones too, and the pairs that are merged.

        Raises:
            UserError: it is of another kind, lacks a part, or a pair is none.
        """
        ids, merges = self._read_ids("BPE"), self.read_model("BPE").get("merges")
        if not isinstance(merges, list):
            raise UserError(f"{self.where}: has no merges")
        ids |= {piece["content"]: i for i, piece in self.read_added().items()}
        return ids, [self._parse_pair(pair) for pair in merges]

    def read_scores(self) -> list[tuple[str, float]]:
        """Reads a Unigram: its pieces in the order of their ids, and their scores.

        Raises:
            UserError: it is of another kind, or has no such list.
        """
        pieces = self.read_model("Unigram").get("vocab")
        try:
            return [(_require(piece, str), float(score)) for piece, score in pieces or ()]
        except (TypeError, ValueError) as error:
            raise UserError(f"{self.where}: its vocabulary is no list of pieces, scores") from error

    def read_added(self) -> dict[int, dict[str, Any]]:
        """Reads the pieces that stand beside the model, by id, each with its content and flags.

        Raises:
            UserError: an entry is none.
        """
        entries = self.content.get("added_tokens") or []
        try:
            return {_require(entry["id"], int): parse_added(entry) for entry in entries}
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{self.where}: its added tokens are not as they should be, each with a content "
                "and an id"
            ) from error

    def _read_ids(self, kind: str) -> dict[str, int]:
        ids = self.read_model(kind).get("vocab")
        if not isinstance(ids, dict):
            raise UserError(f"{self.where}: has no table of pieces")
        return dict(ids)

    def _parse_pair(self, pair: Any) -> tuple[str, str]:
        # Older files write the two in one text; the newer list has pieces with a blank, too.
        parts = pair.split(" ") if isinstance(pair, str) else pair
        if not isinstance(parts, list) or [*map(type, parts)] != [str, str]:
            raise UserError(f"{self.where}: {pair!r} among its merges is no pair of pieces")
        return parts[0], parts[1]


def read(path: Path) -> TokenizerJson:
    """Reads a file.

    Raises:
        UserError: it cannot be read, or is no JSON object.
    """
    try:
        return parse(path.read_text("utf-8"), path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 at byte {error.start}") from error


def parse(text: str, where: str | Path) -> TokenizerJson:
    """Parses the text of a file; `where` names it in errors.

    Raises:
        UserError: it is no JSON object.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{where}: is no tokenizer.json, nor any JSON: {reason}") from error
    if not isinstance(content, dict):
        raise UserError(f"{where}: is no tokenizer.json: it is no object")
    return TokenizerJson(content, where)


def parse_added(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of an added piece with all flags there are, as a file may leave some out.

    Raises:
        KeyError, TypeError: it is no such entry.
    """
    flags = {name: bool(entry.get(name, False)) for name in FLAGS}
    return {"content": _require(entry["content"], str)} | flags


def _require(value: Any, kind: type) -> Any:
    # Not by `isinstance`, to which True is a number.
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
