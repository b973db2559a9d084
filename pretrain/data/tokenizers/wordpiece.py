"""WordPiece, BERT's tokenizer: learned from the corpus, or its published vocabulary.

Follows BERT's tokenization.py (Devlin et al., 2018).  How BERT's vocabularies were learned was
not published: here the pieces are those of a BPE within words.
"""

import hashlib
import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers

from pretrain.data.tokenizers import TRAITS, saved_files
from pretrain.data.tokenizers.training import (
    Encoder,
    check_sample,
    check_size,
    frequent,
    learn,
    read,
    sampled,
)
from pretrain.runtime.errors import UserError

VOCABULARY = "vocab.txt"
SPECIAL = {name: f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
INSIDE = "##"  # before a piece that does not begin its word
LONGEST = 200  # characters of a word; a longer one is unknown
USUAL: dict[str, Any] = dict(  # of BERT's own code; saved where a tokenizer has others
    clean_text=True, handle_chinese_chars=True, longest=LONGEST, base=None, added=[]
)


@dataclass
class Tokenizer(Encoder):
    """Words and marks of punctuation, each cut into the longest pieces there are, left to right.

    A word that cannot be cut so is [UNK].  [SEP] also ends a document.

    Attributes:
        clean_text: control characters are dropped, and all blanks are alike.
        handle_chinese_chars: a Chinese character is a word.
        longest: characters of a word; a longer one is [UNK].
        base: words are cut into so many of the pieces, the first ones; None: into all.
        added: of other pieces, which are found in text before words are, as tokenizer.json has
            them; those that are "special" are never found in text.
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
        self._library.encode_special_tokens = True  # as any other text
        self._library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        self._library.decoder = decoders.WordPiece(prefix=INSIDE)
        self.V = len(self.pieces)
        self.word_start_V = np.array([not piece.startswith(INSIDE) for piece in self.pieces])
        self.special = {name: ids[piece] for name, piece in SPECIAL.items()}
        self.special["eod"] = self.special["sep"]

    @staticmethod
    def settings(
        V: int = 30_522,
        model: str = "",
        lower: bool = True,
        keep_accents: bool | None = None,
        sample: int = 10_000_000,
    ) -> dict[str, Any]:
        """V pieces, learned from at most `sample` sentences; or the published file `model`.

        Accents are dropped from lower-case text, and kept in other text, unless `keep_accents`
        says otherwise.  Learning holds the sample in memory.
        """
        check_sample(sample)
        own = {"V": V, "lower": lower, "keep_accents": _kept(keep_accents, lower)}
        if not model:
            return own | {"sample": sample}
        return own | {"model": hashlib.sha256(read(_path(model)).encode()).hexdigest()}

    @classmethod
    def learn(cls, texts: Iterator[str], **fields: Any) -> "Tokenizer":
        """Learns from the texts, the same pieces each time; or reads the published vocabulary.

        Raises:
            UserError: the texts cannot give V pieces, or the published vocabulary has not V.
        """
        bound = inspect.signature(cls.settings).bind(**fields)
        bound.apply_defaults()
        V, model, lower, keep_accents, sample = bound.arguments.values()
        keep_accents = _kept(keep_accents, lower)
        if model:
            pieces = published(model)
            check_size(V, pieces, model)
        else:
            pieces = _learn(sampled(texts, sample), V, _cleaning(lower, keep_accents))
        return cls(pieces, lower, keep_accents)

    def save(self, folder: Path) -> None:
        traits = {"name": "wordpiece", "lower": self.lower, "keep_accents": self.keep_accents}
        traits |= {x: own for x, usual in USUAL.items() if (own := getattr(self, x)) != usual}
        own = {VOCABULARY: _content(self.pieces), TRAITS: json.dumps(traits).encode()}
        saved_files.write(folder, own)

    @classmethod
    def load(cls, folder: Path) -> "Tokenizer":
        traits = json.loads((folder / TRAITS).read_text())
        more = {name: traits[name] for name in USUAL if name in traits}
        pieces = published(folder / VOCABULARY)
        return cls(pieces, traits["lower"], traits["keep_accents"], **more)


def _kept(keep_accents: bool | None, lower: bool) -> bool:
    return not lower if keep_accents is None else keep_accents


def _cleaning(lower: bool, keep_accents: bool) -> normalizers.Normalizer:
    return normalizers.BertNormalizer(lowercase=lower, strip_accents=not keep_accents)


def write(pieces: list[str], path: Path) -> None:
    """A vocabulary as BERT's are published: a piece a line."""
    path.write_bytes(_content(pieces))


def _content(pieces: list[str]) -> bytes:
    return "".join(f"{piece}\n" for piece in pieces).encode()


def published(model: str | Path) -> list[str]:
    """The pieces of a file, one a line; some are line separators to all but "\\n"."""
    pieces = [line.removesuffix("\r") for line in read(_path(model)).split("\n")]
    pieces = pieces[:-1] if not pieces[-1] else pieces
    if len(set(pieces)) < len(pieces):
        first: dict[str, int] = {}
        line = next(i for i, piece in enumerate(pieces, 1) if first.setdefault(piece, i) < i)
        raise UserError(
            f"tokens.model={model}: line {line} repeats line {first[pieces[line - 1]]}: "
            f"{pieces[line - 1]!r}"
        )
    check_special(pieces, model)
    return pieces


def check_special(pieces: list[str], where: str | Path) -> None:
    """UserError unless all of BERT's special pieces are there."""
    if missing := [piece for piece in SPECIAL.values() if piece not in pieces]:
        raise UserError(f"tokens.model={where}: is not a vocabulary of BERT: no {missing[0]}")


def _path(model: str | Path) -> Path:
    return Path(model).expanduser()


def _learn(texts: list[str], V: int, cleaning: normalizers.Normalizer) -> list[str]:
    texts = [cleaning.normalize_str(text) for text in texts]
    blank = library.Tokenizer(models.BPE())
    blank.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters, mark = frequent(texts), {"continuing_subword_prefix": INSIDE}
    return learn(texts, blank, V, letters, list(SPECIAL.values()), **mark)[0]
