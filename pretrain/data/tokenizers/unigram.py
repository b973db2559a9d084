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

from pretrain.data.tokenizers import TRAITS, saved_files, tokenizer_json
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
        self._library = library.Tokenizer.from_str(
            _without_marks(tokenizer_json.parse(self.model, MODEL))
        )
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
        tokenizer_json.parse(content, where).read_scores()
        try:
            tokenizer = cls(content)
        except UserError:
            raise
        except Exception as error:  # the library raises nothing more special
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UserError(f"{where}: is no tokenizer.json: {reason}") from error
        if not {"unk", "cls", "sep"} <= tokenizer.special.keys():
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
        whole = tokenizer_json.parse(self.model, MODEL)
        vocabulary = whole.read_scores()
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

        new = find_new_words(
            map(normalize, texts), most, self.pieces, scores, tokenize, self.special["unk"]
        )
        model = whole.content["model"] | {"vocab": [*vocabulary, *new]}
        content = json.dumps({**whole.content, "model": model})
        return Tokenizer.of(content, "the extended tokenizer.json")

    def save(self, folder: Path) -> None:
        traits = json.dumps({"name": "unigram"})
        saved_files.write_files(folder, {MODEL: self.model.encode(), TRAITS: traits.encode()})

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        return cls.of(read_text(folder / MODEL), folder / MODEL)


def _without_marks(whole: tokenizer_json.TokenizerJson) -> str:
    """Renames special pieces so that no text becomes one of them."""
    added = whole.read_added()
    marks = {x["content"] for x in added.values() if x["special"]} - {SPECIAL["unk"]}
    # Ids and scores stay: a special piece keeps its place under a name that no text has.
    pieces = [(x + NEVER if x in marks else x, score) for x, score in whole.read_scores()]
    model = whole.content["model"] | {"vocab": pieces}
    others = [{"id": i, **x} for i, x in added.items() if not x["special"]]
    return json.dumps({**whole.content, "model": model, "added_tokens": others})
