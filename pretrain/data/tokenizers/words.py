"""Whole words, ELMo's tokens: all of the corpus, the commonest first, or a published list before.

Follows bilm-tf's Vocabulary (Peters et al., 2018): three marks, then words by falling frequency,
the order that a sampled softmax counts on.
"""

import hashlib
import inspect
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from tokenizers import models, normalizers, pre_tokenizers, trainers

from pretrain.data.tokenizers import TRAITS, saved_files
from pretrain.data.tokenizers.training import Encoder
from pretrain.runtime.errors import UserError

VOCABULARY = "words.txt"
MARKS = ("<S>", "</S>", "<UNK>")
NO_WORD = "!!!MAXTERMID"  # a line of some published files that has no id
SPLITS = {
    "punctuation": pre_tokenizers.BertPreTokenizer,
    "blank": pre_tokenizers.WhitespaceSplit,
}


@dataclass
class Tokenizer(Encoder):
    """Words as they are spelled; one without an id is <UNK>, and so are "<S>" and "</S>" in text.

    </S> ends every sentence, and the last one's ends the document.
    """

    pieces: list[str]
    split: str = "punctuation"
    lower: bool = False

    def __post_init__(self):
        ids = {word: i for i, word in enumerate(self.pieces) if word not in MARKS[:2]}
        self._library = _blank(self.split, self.lower)
        self._library.model = models.WordLevel(ids, unk_token=MARKS[2])
        self.V = len(self.pieces)
        self.word_start_V = np.ones(self.V, bool)
        self.special = {"bos": 0, "eos": 1, "unk": 2, "eod": 1}

    @staticmethod
    def settings(
        vocabulary: str = "", split: str = "punctuation", lower: bool = False, types: int = 0
    ) -> dict[str, Any]:
        """All words of the text, or the commonest so that there are `types` with the marks.

        vocabulary: a published file of words whose order the ids keep; the text's other words
            come behind them.
        split: "punctuation" parts words and marks, "blank" is for text with blanks there already.
        """
        if split not in SPLITS:
            raise UserError(f"tokens.split={split!r}: choose one of {', '.join(map(repr, SPLITS))}")
        if types and types <= len(MARKS):
            raise UserError(f"tokens.types={types}: the marks are {len(MARKS)} already; 0 is all")
        own = {"split": split, "lower": lower, "types": types}
        if not vocabulary:
            return own
        digest = hashlib.sha256("\n".join(_published(vocabulary)).encode()).hexdigest()
        return own | {"vocabulary": digest}

    @classmethod
    def learn(cls, texts: Iterator[str], **fields: Any) -> "Tokenizer":
        """Counts the words of the texts; memory holds each type once.

        Raises:
            UserError: the published vocabulary is none, or has more words than `types`.
        """
        bound = inspect.signature(cls.settings).bind(**fields)
        bound.apply_defaults()
        vocabulary, split, lower, types = bound.arguments.values()
        first = _published(vocabulary) if vocabulary else list(MARKS)
        if types and len(first) > types:
            raise UserError(f"tokens.types={types}, but {vocabulary} has {len(first)} words")
        made = cls(first, split, lower).extended(texts)
        return cls(made.pieces[:types], split, lower) if types else made

    def extended(self, texts: Iterable[str]) -> "Tokenizer":
        """The same ids, and behind them the texts' other words, those that occur most first."""
        counted = _blank(self.split, self.lower)
        everything = trainers.WordLevelTrainer(vocab_size=1 << 48, show_progress=False)
        counted.train_from_iterator(texts, everything)
        ids = counted.get_vocab(with_added_tokens=False)
        known = set(self.pieces)
        new = [word for word in sorted(ids, key=ids.__getitem__) if word not in known]
        return type(self)(self.pieces + new, self.split, self.lower)

    def words(self, texts: Iterable[str]) -> list[list[str]]:
        """The words of each text as they are spelled, with an id or without."""
        clean, cut = self._library.normalizer, self._library.pre_tokenizer
        texts = [clean.normalize_str(text) for text in texts] if clean else texts
        return [[word for word, _ in cut.pre_tokenize_str(text)] for text in texts]

    def save(self, folder: Path) -> None:
        words = "".join(f"{word}\n" for word in self.pieces).encode()
        traits = {"name": "words", "split": self.split, "lower": self.lower}
        saved_files.write(folder, {VOCABULARY: words, TRAITS: json.dumps(traits).encode()})

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        traits = json.loads((folder / TRAITS).read_text())
        pieces = (folder / VOCABULARY).read_bytes().decode().split("\n")[:-1]
        return cls(pieces, traits["split"], traits["lower"])


def _blank(split: str, lower: bool) -> library.Tokenizer:
    """Without words.  Its counts repeat: of words equally frequent the lesser UTF-8 is first."""
    blank = library.Tokenizer(models.WordLevel({}, unk_token=MARKS[2]))
    blank.pre_tokenizer = SPLITS[split]()
    if lower:
        blank.normalizer = normalizers.Lowercase()
    return blank


def _published(vocabulary: str) -> list[str]:
    """The words of a file, one a line, the marks first."""
    lines = [line.removesuffix("\r") for line in _read(vocabulary).removesuffix("\n").split("\n")]
    words = [line for line in lines if line != NO_WORD]
    if tuple(words[: len(MARKS)]) != MARKS:
        raise _refused(vocabulary, f"does not begin with a line each of {', '.join(MARKS)}")
    numbers = {word: number for number, word in reversed(list(enumerate(lines, 1)))}
    if len(numbers) < len(lines):
        twice = next(i for i, word in enumerate(lines, 1) if numbers[word] < i)
        raise _refused(vocabulary, f"line {twice} repeats line {numbers[lines[twice - 1]]}")
    return words


def _read(vocabulary: str) -> str:
    try:
        return Path(vocabulary).expanduser().read_bytes().decode()
    except OSError as error:
        raise _refused(vocabulary, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _refused(vocabulary, f"byte {error.start} is not UTF-8") from error


def _refused(vocabulary: str, reason: str) -> UserError:
    return UserError(f"tokens.vocabulary={vocabulary}: {reason}")
