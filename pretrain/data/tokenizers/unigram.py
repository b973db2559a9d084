"""Loads XLNet's pieces from Hugging Face's tokenizer.json, without a SentencePiece model.

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
from pretrain.data.tokenizers.training import Encoder, read_text
from pretrain.data.tokenizers.unigram_words import find_new_words
from pretrain.runtime.errors import UserError

MODEL = "pieces.json"
NEVER = "\n"  # ends the pieces that no text has: between two words it is a blank


@dataclass
class Tokenizer(Encoder):
    """Hugging Face's tokenizer, whose special pieces are never found in text.

    Attributes:
        model: the text of a tokenizer.json, unchanged.
    """

    model: str

    def __post_init__(self):
        whole = library.Tokenizer.from_str(self.model)
        self.V = whole.get_vocab_size()
        ids = whole.get_vocab()
        self.pieces = sorted(ids, key=ids.__getitem__)
        self._library = library.Tokenizer.from_str(_without_marks(self.model))
        # A file may ask for padding and truncation, which are up to those who make rows.
        self._library.no_padding()
        self._library.no_truncation()
        self.word_start_V = np.array([starts_word(piece) for piece in self.pieces])
        self.special = {name: ids[x] for name, x in SPECIAL.items() if x in ids}

    @staticmethod
    def settings(model: str) -> dict[str, Any]:
        """Hashes the published tokenizer.json `model`."""
        return {"model": hashlib.sha256(read_text(Path(model).expanduser()).encode()).hexdigest()}

    @classmethod
    def learn(cls, texts: Iterator[str], model: str) -> "Tokenizer":
        """Loads the published file; the texts are not read.

        Raises:
            UserError: it cannot be read, or is of another kind.
        """
        return cls.of(read_text(Path(model).expanduser()), model)

    @classmethod
    def of(cls, content: str, where: str | Path) -> "Tokenizer":
        """Builds the tokenizer of the text of a tokenizer.json; `where` names it in errors.

        Raises:
            UserError: it is none, or of another kind.
        """
        try:
            kind = json.loads(content)["model"].get("type", "Unigram")
            tokenizer = cls(content)
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"{where}: is no tokenizer.json: {error}") from error
        if kind != "Unigram" or not {"unk", "cls", "sep"} <= tokenizer.special.keys():
            raise UserError(f"{where}: is no Unigram tokenizer with <unk>, <cls> and <sep>")
        return tokenizer

    def decode(self, ids: Iterable[int]) -> str:
        return super().decode(ids).replace(NEVER, "")

    def add_words(self, texts: Iterable[str], most: int) -> "Tokenizer":
        """Returns a tokenizer with the texts' commonest cut words as pieces behind its own.

        See `unigram_words.find_new_words`.

        Raises:
            UserError: the texts have fewer, or pieces were added behind the model's own.
        """
        content = json.loads(self.model)
        vocabulary = content["model"]["vocab"]
        if len(vocabulary) != self.V:
            raise UserError(
                f"tokens.extend={most}: this vocabulary ends in {self.V - len(vocabulary)} pieces "
                "that were added to its model, and new ones cannot stand behind them"
            )
        scores = [score for _, score in vocabulary]

        def normalize(text: str) -> str:
            clean = self._library.normalizer
            text = clean.normalize_str(text) if clean else text
            return "".join(word for word, _ in self._library.pre_tokenizer.pre_tokenize_str(text))

        def tokenize(word: str) -> list[int]:
            return [piece.id for piece in self._library.model.tokenize("▁" + word)]

        content["model"]["vocab"] += find_new_words(
            map(normalize, texts), most, self.pieces, scores, tokenize, self.special["unk"]
        )
        return Tokenizer.of(json.dumps(content), "the extended tokenizer.json")

    def save(self, folder: Path) -> None:
        traits = json.dumps({"name": "unigram"})
        saved_files.write_files(folder, {MODEL: self.model.encode(), TRAITS: traits.encode()})

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        return cls.of(read_text(folder / MODEL), folder / MODEL)


def _without_marks(model: str) -> str:
    """Renames special pieces so that no text becomes one of them."""
    content = json.loads(model)
    added = content.get("added_tokens") or []
    marks = {piece["content"] for piece in added if piece["special"]}
    # Ids and scores stay: a special piece keeps its place under a name that no text has.
    content["added_tokens"] = [piece for piece in added if not piece["special"]]
    vocabulary = content["model"]["vocab"]
    names = [x + NEVER if x in marks and x != SPECIAL["unk"] else x for x, _ in vocabulary]
    content["model"]["vocab"] = [
        [x, score] for x, (_, score) in zip(names, vocabulary, strict=True)
    ]
    return json.dumps(content)
