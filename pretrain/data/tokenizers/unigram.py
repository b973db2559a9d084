"""XLNet's pieces as Hugging Face's code has them: a tokenizer.json, without a SentencePiece model.

Its rules are those of that file: no comma is apart from its number, and accents are always dropped.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library

from pretrain.data.tokenizers import TRAITS, saved_files
from pretrain.data.tokenizers.sentencepiece import SPECIAL, starts_word
from pretrain.data.tokenizers.training import Encoder, read
from pretrain.runtime.errors import UserError

MODEL = "pieces.json"
NEVER = "\n"  # ends the pieces that no text has: between two words it is a blank


@dataclass
class Tokenizer(Encoder):
    """`model` is the text of a tokenizer.json, of which nothing is changed.

    Its special pieces are never found in text.
    """

    model: str

    def __post_init__(self):
        whole = library.Tokenizer.from_str(self.model)
        self.V = whole.get_vocab_size()
        ids = whole.get_vocab()
        self.pieces = sorted(ids, key=ids.__getitem__)
        self._library = library.Tokenizer.from_str(_without_marks(self.model))
        self._library.no_padding()
        self._library.no_truncation()
        self.word_start_V = np.array([starts_word(piece) for piece in self.pieces])
        known = {piece: i for i, piece in enumerate(self.pieces)}
        self.special = {name: known[x] for name, x in SPECIAL.items() if x in known}

    @staticmethod
    def settings(model: str) -> dict[str, Any]:
        """The published tokenizer.json `model`."""
        return {"model": hashlib.sha256(read(Path(model).expanduser()).encode()).hexdigest()}

    @classmethod
    def learn(cls, texts: Iterator[str], model: str) -> "Tokenizer":
        """The published file; the texts teach it nothing.

        Raises:
            UserError: it cannot be read, or is of another kind.
        """
        return cls.of(read(Path(model).expanduser()), model)

    @classmethod
    def of(cls, content: str, where: str | Path) -> "Tokenizer":
        """Of the text of a tokenizer.json, found in this file.

        Raises:
            UserError: it is none, or of another kind.
        """
        try:
            kind = json.loads(content)["model"].get("type", "Unigram")
            made = cls(content)
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"{where}: is no tokenizer.json: {error}") from error
        if kind != "Unigram" or not {"unk", "cls", "sep"} <= made.special.keys():
            raise UserError(f"{where}: is no Unigram tokenizer with <unk>, <cls> and <sep>")
        return made

    def decode(self, ids: Iterable[int]) -> str:
        return super().decode(ids).replace(NEVER, "")

    def save(self, folder: Path) -> None:
        traits = json.dumps({"name": "unigram"})
        saved_files.write(folder, {MODEL: self.model.encode(), TRAITS: traits.encode()})

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        return cls.of(read(folder / MODEL), folder / MODEL)


def _without_marks(model: str) -> str:
    """The same tokenizer, but that no text becomes a special piece."""
    found = json.loads(model)
    added = found.get("added_tokens") or []
    marks = {piece["content"] for piece in added if piece["special"]}
    found["added_tokens"] = [piece for piece in added if not piece["special"]]
    vocabulary = found["model"]["vocab"]
    names = [x + NEVER if x in marks and x != SPECIAL["unk"] else x for x, _ in vocabulary]
    found["model"]["vocab"] = [[x, score] for x, (_, score) in zip(names, vocabulary, strict=True)]
    return json.dumps(found)
