"""Implements WordPiece, BERT's tokenizer, learned or with a published vocabulary.

Follows BERT's tokenization.py (Devlin et al., 2018).  How BERT's vocabularies were learned was
not published: here the pieces are those of a BPE within words.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers

from pretrain.data.tokenizers import (
    TRAITS,
    fill_defaults,
    saved_files,
    tokenizer_json,
    whole_words,
)
from pretrain.data.tokenizers.training import (
    Encoder,
    check_sample,
    check_size,
    learn_pieces,
    rank_characters,
    read_text,
    sample_texts,
)
from pretrain.runtime.errors import UserError

VOCABULARY = "vocab.txt"
SPECIAL = {name: f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
INSIDE = "##"  # before a piece that does not begin its word
LONGEST = 200  # characters of a word; a longer one is unknown
USUAL: dict[str, Any] = dict(  # by BERT's own code; other values are saved
    clean_text=True, handle_chinese_chars=True, longest=LONGEST, base=None, added=[]
)


@dataclass
class Tokenizer(Encoder):
    """Words and marks of punctuation, each cut into the longest pieces there are, left to right.

    A word that cannot be cut so is [UNK].

    Attributes:
        clean_text: control characters are dropped, and all blanks are alike.
        handle_chinese_chars: a Chinese character is a word.
        longest: characters of a word; a longer one is [UNK].
        base: words are cut into the first `base` pieces; None cuts them into all.
        added: other pieces, which are found in text before words are, in tokenizer.json's form;
            those that are "special" are never found in text.
    """

    pieces: list[str]
    lower: bool = True
    keep_accents: bool = False
    clean_text: bool = True
    handle_chinese_chars: bool = True
    longest: int = LONGEST
    base: int | None = None
    added: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self):
        ids = {piece: i for i, piece in enumerate(self.pieces)}
        model = models.WordPiece(
            {piece: i for piece, i in ids.items() if self.base is None or i < self.base},
            unk_token=SPECIAL["unk"],
            continuing_subword_prefix=INSIDE,
            max_input_chars_per_word=self.longest,
        )
        self._library = library.Tokenizer(model)
        self._library.normalizer = normalizers.BertNormalizer(
            self.clean_text, self.handle_chinese_chars, not self.keep_accents, self.lower
        )
        self._library.add_tokens([library.AddedToken(**piece) for piece in self.added])
        # A text that says [MASK] means these letters.
        self._library.encode_special_tokens = True  # as any other text
        self._library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._library.decoder = decoders.WordPiece(prefix=INSIDE)
        self.V = len(self.pieces)
        self.word_start_V = np.array([not piece.startswith(INSIDE) for piece in self.pieces])
        self.special = {name: ids[piece] for name, piece in SPECIAL.items()}
        self.special["eod"] = self.special["sep"]  # BERT has no other end

    @staticmethod
    def settings(
        V: int = 30_522,
        model: str = "",
        lower: bool = True,
        keep_accents: bool | None = None,
        sample: int = 10_000_000,
    ) -> dict[str, Any]:
        """Checks the fields: V pieces, learned from at most `sample` sentences, or of `model`.

        Args:
            V: the number of pieces.
            model: a published vocabulary file, or a tokenizer.json; "" learns one.
            lower: lower the case of text.
            keep_accents: by default they are dropped from lower-case text alone.
            sample: sentences to learn from, which are held in memory.
        """
        check_sample(sample)
        options = {"V": V, "lower": lower, "keep_accents": _keeps_accents(keep_accents, lower)}
        if not model:
            return options | {"sample": sample}
        # A prepared corpus is found by these: a published vocabulary counts by its content.
        return options | {
            "model": hashlib.sha256(read_text(_expand_path(model)).encode()).hexdigest()
        }

    @classmethod
    def learn(cls, texts: Iterator[str], **fields: Any) -> "Tokenizer":
        """Learns from the texts, the same pieces each time; or reads the published vocabulary.

        Raises:
            UserError: the texts cannot give V pieces, or the published vocabulary has not V.
        """
        options = fill_defaults(cls.settings, fields)
        V, model, lower = options["V"], options["model"], options["lower"]
        keep_accents = _keeps_accents(options["keep_accents"], lower)
        if model:
            pieces = read_vocabulary(model)
            check_size(V, pieces, model)
            check_case(model, lower)
        else:
            cleaning = normalizers.BertNormalizer(lowercase=lower, strip_accents=not keep_accents)
            pieces = _learn_vocabulary(sample_texts(texts, options["sample"]), V, cleaning)
        return cls(pieces, lower, keep_accents)

    def add_words(self, texts: Iterable[str], most: int) -> "Tokenizer":
        """Returns a tokenizer with the texts' commonest cut words as pieces behind its own.

        Words have a letter, and were cut into several pieces, or unknown.  A longer word may then
        be cut otherwise, as its longest beginning may be a new piece.

        Raises:
            UserError: the texts have fewer, or words are not cut into all pieces there are.
        """
        if self.base is not None:
            raise UserError(
                f"tokens.extend={most}: this vocabulary ends in {self.V - self.base} pieces that "
                "no word is cut into, and new ones cannot stand behind them"
            )
        old, unknown = set(self.pieces), self.special["unk"]

        def is_new(word: str) -> bool:
            if word in old or len(word) > self.longest or not whole_words.has_letter(word):
                return False
            return whole_words.is_cut(word, self._library, unknown)

        ranked = whole_words.rank_words(texts, self._library)
        return replace(self, pieces=[*self.pieces, *whole_words.select_words(ranked, is_new, most)])

    def save(self, folder: Path) -> None:
        traits = {"name": "wordpiece", "lower": self.lower, "keep_accents": self.keep_accents}
        # Without what BERT's own code does, which is the default in `load`.
        traits |= {x: value for x, usual in USUAL.items() if (value := getattr(self, x)) != usual}
        files = {VOCABULARY: _format_pieces(self.pieces), TRAITS: json.dumps(traits).encode()}
        saved_files.write_files(folder, files)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        traits = json.loads((folder / TRAITS).read_text())
        more = {name: traits[name] for name in USUAL if name in traits}
        pieces = read_vocabulary(folder / VOCABULARY)
        return cls(pieces, traits["lower"], traits["keep_accents"], **more)


def _keeps_accents(keep_accents: bool | None, lower: bool) -> bool:
    return not lower if keep_accents is None else keep_accents


def write_vocabulary(pieces: list[str], path: Path) -> None:
    """Writes a vocabulary in BERT's published form: a piece a line."""
    path.write_bytes(_format_pieces(pieces))


def _format_pieces(pieces: list[str]) -> bytes:
    return "".join(f"{piece}\n" for piece in pieces).encode()


def read_vocabulary(model: str | Path) -> list[str]:
    """Reads the pieces of a file, one a line.

    Raises:
        UserError: it cannot be read, repeats a piece, or has not all of BERT's special pieces.
    """
    path = _expand_path(model)
    if path.suffix == ".json":
        pieces = tokenizer_json.read(path).read_pieces("WordPiece")
        check_special(pieces, model)
        return pieces
    # Not by `splitlines`, to which some pieces are separators.
    pieces = [line.removesuffix("\r") for line in read_text(path).split("\n")]
    pieces = pieces[:-1] if not pieces[-1] else pieces
    if len(set(pieces)) < len(pieces):
        # By its lines, as the reader of a file of 30,000 lines needs them.
        first: dict[str, int] = {}
        line = next(i for i, piece in enumerate(pieces, 1) if first.setdefault(piece, i) < i)
        raise UserError(
            f"tokens.model={model}: line {line} repeats line {first[pieces[line - 1]]}: "
            f"{pieces[line - 1]!r}"
        )
    check_special(pieces, model)
    return pieces


def check_case(model: str, lower: bool) -> None:
    """Raises UserError if a tokenizer.json says otherwise whether text is lower-cased."""
    if _expand_path(model).suffix == ".json":
        normalizer = tokenizer_json.read(_expand_path(model)).content.get("normalizer")
        rules = normalizer if isinstance(normalizer, dict) else {}
        if (said := rules.get("lowercase", lower)) != lower:
            raise UserError(f"tokens.lower={lower}: {model} has pieces for lower={said}")


def check_special(pieces: list[str], where: str | Path) -> None:
    """Raises UserError unless all of BERT's special pieces are there."""
    if missing := [piece for piece in SPECIAL.values() if piece not in pieces]:
        raise UserError(f"tokens.model={where}: is not a vocabulary of BERT: no {missing[0]}")


def _expand_path(model: str | Path) -> Path:
    return Path(model).expanduser()


def _learn_vocabulary(texts: list[str], V: int, cleaning: normalizers.Normalizer) -> list[str]:
    texts = [cleaning.normalize_str(text) for text in texts]
    # A BPE with marks inside words gives pieces that WordPiece can look up.
    blank = library.Tokenizer(models.BPE())
    blank.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters, mark = rank_characters(texts), {"continuing_subword_prefix": INSIDE}
    return learn_pieces(texts, blank, V, letters, list(SPECIAL.values()), **mark)[0]
