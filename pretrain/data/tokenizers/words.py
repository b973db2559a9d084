"""Implements ELMo's tokens: the whole words of a corpus, perhaps behind a published list.

Follows bilm-tf's Vocabulary (Peters et al., 2018): three marks, then words by falling frequency,
the order that a sampled softmax counts on.
"""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from tokenizers import models, normalizers, pre_tokenizers

from pretrain.data.tokenizers import TRAITS, fill_defaults, saved_files, whole_words
from pretrain.data.tokenizers.training import Encoder
from pretrain.runtime.errors import UserError

VOCABULARY = "words.txt"
MARKS = ("<S>", "</S>", "<UNK>")
NO_WORD = "!!!MAXTERMID"  # a line of some published files that has no id
SPLITS = {
    "punctuation": pre_tokenizers.BertPreTokenizer,
    "blank": pre_tokenizers.WhitespaceSplit,
}


@dataclasses.dataclass
class Tokenizer(Encoder):
    """Words as they are spelled; one without an id is <UNK>, and so are "<S>" and "</S>" in text.

    A published vocabulary may have others for these three, at any place; see `marks`.
    """

    pieces: list[str]
    split: str = "punctuation"
    lower: bool = False
    marks: tuple[str, ...] = MARKS  # of the beginning, the end, and an unknown word

    def __post_init__(self):
        # "<S>" and "</S>" in a text are no ends of sentences.
        ids = {word: i for i, word in enumerate(self.pieces) if word not in self.marks[:2]}
        self._library = _make_blank(self.split, self.lower, self.marks[2])
        self._library.model = models.WordLevel(ids, unk_token=self.marks[2])
        self.V = len(self.pieces)
        self.word_start_V = np.ones(self.V, bool)
        # </S> ends every sentence, and the last one's ends the document.
        bos, eos, unk = map(self.pieces.index, self.marks)
        self.special = {"bos": bos, "eos": eos, "unk": unk, "eod": eos}

    @staticmethod
    def settings(
        vocabulary: str = "", split: str = "punctuation", lower: bool = False, types: int = 0
    ) -> dict[str, Any]:
        """Checks the fields: all words of the text, or the commonest.

        Args:
            vocabulary: a published file of words, in the order of their ids; the text's other
                words come behind them.
            split: "punctuation" parts words and marks; "blank" is for text with blanks there.
            lower: lower the case of text.
            types: the number of ids, marks included; 0 takes all words.
        """
        if split not in SPLITS:
            raise UserError(f"tokens.split={split!r}: choose one of {', '.join(map(repr, SPLITS))}")
        if types and types <= len(MARKS):
            raise UserError(f"tokens.types={types}: the marks are {len(MARKS)} already; 0 is all")
        options = {"split": split, "lower": lower, "types": types}
        if not vocabulary:
            return options
        digest = hashlib.sha256("\n".join(_read_words(vocabulary)).encode()).hexdigest()
        return options | {"vocabulary": digest}

    @classmethod
    def learn(cls, texts: Iterator[str], **fields: Any) -> "Tokenizer":
        """Counts the words of the texts; memory holds each type once.

        Raises:
            UserError: the published vocabulary is none, or has more words than `types`.
        """
        options = fill_defaults(cls.settings, fields)
        vocabulary, types = options["vocabulary"], options["types"]
        split, lower = options["split"], options["lower"]
        # A published order is kept, since trained weights have it.
        first = _read_words(vocabulary) if vocabulary else list(MARKS)
        if types and len(first) > types:
            raise UserError(f"tokens.types={types}, but {vocabulary} has {len(first)} words")
        tokenizer = cls(first, split, lower).extend(texts)
        return cls(tokenizer.pieces[:types], split, lower) if types else tokenizer

    def extend(self, texts: Iterable[str]) -> "Tokenizer":
        """Returns a tokenizer with the texts' other words behind its own, the commonest first."""
        old = set(self.pieces)
        new = [word for word in self._rank_words(texts) if word not in old]
        return dataclasses.replace(self, pieces=self.pieces + new)

    def add_words(
        self, texts: Iterable[str], most: int, known: int | None = None, rest: bool = False
    ) -> "Tokenizer":
        """Returns a tokenizer with the texts' commonest other words behind its own.

        Args:
            most: how many of them.
            known: its first so many words alone are its own; the others come behind the new ones.
            rest: all other words of the texts come last.

        Raises:
            UserError: the texts have fewer.
        """
        first = self.pieces[:known]
        old = set(first)
        ranked = self._rank_words(texts)
        new = whole_words.select_words(ranked, lambda word: word not in old, most)
        others = [*self.pieces[len(first) :], *(ranked if rest else ())]
        # Each word once, where it stands first.
        pieces = dict.fromkeys([*first, *new, *others])
        return dataclasses.replace(self, pieces=list(pieces))

    def _rank_words(self, texts: Iterable[str]) -> list[str]:
        return whole_words.rank_words(texts, self._library)

    def words(self, texts: Iterable[str]) -> list[list[str]]:
        """Splits each text into words as they are spelled, with an id or without."""
        clean, cut = self._library.normalizer, self._library.pre_tokenizer
        texts = [clean.normalize_str(text) for text in texts] if clean else texts
        return [[word for word, _ in cut.pre_tokenize_str(text)] for text in texts]

    def save(self, folder: Path) -> None:
        traits = {"name": "words", "split": self.split, "lower": self.lower}
        if self.marks != MARKS:
            traits["marks"] = list(self.marks)
        files = {VOCABULARY: encode_list(self.pieces), TRAITS: json.dumps(traits).encode()}
        saved_files.write_files(folder, files)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        traits = json.loads((folder / TRAITS).read_text())
        pieces = (folder / VOCABULARY).read_bytes().decode().split("\n")[:-1]
        marks = tuple(traits.get("marks", MARKS))
        return cls(pieces, traits["split"], traits["lower"], marks)


def _make_blank(split: str, lower: bool, unknown: str) -> library.Tokenizer:
    """Makes a tokenizer without words."""
    blank = library.Tokenizer(models.WordLevel({}, unk_token=unknown))
    blank.pre_tokenizer = SPLITS[split]()
    if lower:
        blank.normalizer = normalizers.Lowercase()
    return blank


def _read_words(vocabulary: str) -> list[str]:
    """Reads a published vocabulary, whose first lines are the marks."""
    where = f"tokens.vocabulary={vocabulary}"
    words = [word for word in read_list(Path(vocabulary).expanduser(), where) if word != NO_WORD]
    if tuple(words[: len(MARKS)]) != MARKS:
        raise UserError(f"{where}: does not begin with a line each of {', '.join(MARKS)}")
    return words


def read_list(path: Path, where: str) -> list[str]:
    """Reads a list of words, one a line.

    Args:
        where: names the file in errors.

    Raises:
        UserError: it cannot be read, is not UTF-8, or a word is there twice.
    """
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise UserError(f"{where}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start} is not UTF-8") from error
    words = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    numbers: dict[str, int] = {}  # the first line of each word
    for number, word in enumerate(words, 1):
        if numbers.setdefault(word, number) < number:
            raise UserError(f"{where}: line {number} repeats line {numbers[word]}")
    return words


def encode_list(words: Iterable[str]) -> bytes:
    """Returns the file of a list of words, as `read_list` reads it."""
    return "".join(f"{word}\n" for word in words).encode()
