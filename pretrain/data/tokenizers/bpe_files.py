"""Reads and writes a BPE: its pieces by id, and the pairs that are merged, in order."""

import functools
import hashlib
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from pretrain.data.tokenizers import TRAITS, Offsets, fill_defaults, saved_files, tokenizer_json
from pretrain.data.tokenizers.offsets import make_offsets
from pretrain.data.tokenizers.training import (
    Encoder,
    Merges,
    check_sample,
    check_size,
    read_text,
    sample_texts,
)
from pretrain.data.tokenizers.whole_words import (
    WholeWords,
    has_letter,
    is_cut,
    rank_words,
    select_words,
)
from pretrain.runtime import json_files
from pretrain.runtime.errors import UserError

Files = tuple[Path, Path]

SAVED = ("vocab.json", "merges.txt")
HEADER = "#version: 0.2"
OTHER_RULES = ("dropout", "byte_fallback", "ignore_merges", "continuing_subword_prefix")


class WholeWordEncoder(Encoder):
    """Encodes by `_library`, but for the words that are the last pieces.

    Attributes:
        pieces: the text of each id.
        whole: the last so many are words.
        ending: of the piece that ends a word.
    """

    pieces: list[str]
    whole: int
    ending: ClassVar[str] = ""

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        # The library alone is much faster, and right where no word stands for itself.
        if not self.whole:
            return super().encode(texts)
        return [span.ids for span in self._words.encode(texts)]

    def offsets(self, texts: list[str]) -> list[Offsets]:
        if not self.whole:
            return super().offsets(texts)
        spans = zip(texts, self._words.encode(texts), strict=True)
        return [make_offsets(text, span.ids, span.places) for text, span in spans]

    @functools.cached_property
    def _words(self) -> WholeWords:
        first = len(self.pieces) - self.whole
        # Texts have words without the mark of a word's end, which pieces bear.
        words = [piece.removesuffix(self.ending) for piece in self.pieces[first:]]
        return WholeWords(self._library, {word: i for i, word in enumerate(words, first)})


@dataclass
class MergeEncoder(WholeWordEncoder):
    """Base of GPT-1's and GPT-2's tokenizers: their files, and how pieces are learned.

    Attributes:
        pieces: the text of each id.
        merges: the pairs of pieces that are merged, in order.
        whole: the last so many pieces are words, which are not cut; no other word has them.
    """

    pieces: list[str]
    merges: Merges
    whole: int = 0

    name: ClassVar[str]
    published: ClassVar[tuple[str, str]]  # the files, as the authors named them
    needed: ClassVar[tuple[str, ...]]  # pieces that a vocabulary must have

    @staticmethod
    @abstractmethod
    def settings(V: int, model: str, sample: int) -> dict[str, Any]:
        """Checks the fields, and returns what the pieces depend on.

        Args:
            V: the number of pieces.
            model: a folder with a published vocabulary, or a tokenizer.json; "" learns one.
            sample: sentences to learn from, which are held in memory.
        """

    @staticmethod
    @abstractmethod
    def learn_pieces(texts: list[str], V: int) -> tuple[list[str], Merges]:
        """Learns (V pieces, merges) from the texts."""

    @classmethod
    def learn(cls, texts: Iterator[str], **fields: Any) -> Self:
        """Learns from the texts, the same pieces each time; or reads the published files.

        Raises:
            UserError: the texts cannot give V pieces, or the published vocabulary has not V.
        """
        options = fill_defaults(cls.settings, fields)
        V, model = options["V"], options["model"]
        if not model:
            return cls(*cls.learn_pieces(sample_texts(texts, options["sample"]), V))
        tokenizer = cls.read(*_find_files(model, cls.published))
        check_size(V, tokenizer.pieces, model)
        return tokenizer

    def add_words(self, texts: Iterable[str], most: int) -> Self:
        """Returns a tokenizer with the texts' commonest cut words as pieces behind its own.

        Words have a letter, and were cut into several pieces, or unknown.  All other words are cut
        as before.

        Raises:
            UserError: the texts have fewer.
        """
        old, unknown = set(self.pieces), self.special.get("unk")

        def is_new(word: str) -> bool:
            piece = word + self.ending
            if piece in old or not is_cut(word, self._library, unknown):
                return False
            # As text: a piece of bytes is spelled in letters, whatever it stands for.
            return has_letter(self._library.decoder.decode([piece]))

        new = select_words(rank_words(texts, self._library), is_new, most)
        pieces = [*self.pieces, *(word + self.ending for word in new)]
        return replace(self, pieces=pieces, whole=self.whole + most)

    def save(self, folder: Path) -> None:
        traits = {"name": self.name} | ({"whole": self.whole} if self.whole else {})
        contents = dict(zip(SAVED, self._contents(), strict=True))
        saved_files.write_files(folder, {**contents, TRAITS: json.dumps(traits).encode()})

    def write(self, vocabulary: Path, merges: Path) -> None:
        """Writes the two files in the authors' format."""
        for path, content in zip((vocabulary, merges), self._contents(), strict=True):
            path.write_bytes(content)

    def _contents(self) -> tuple[bytes, bytes]:
        table = json.dumps({piece: i for i, piece in enumerate(self.pieces)})
        lines = [HEADER, *(" ".join(pair) for pair in self.merges), ""]
        return table.encode(), "\n".join(lines).encode()

    @classmethod
    def load(cls, folder: Path) -> Self:
        return replace(cls.read(folder / SAVED[0], folder / SAVED[1]), whole=_count_whole(folder))

    @classmethod
    def read(cls, vocabulary: Path, merges: Path, more: Mapping[str, int] | None = None) -> Self:
        """Builds the tokenizer of two files.

        Args:
            vocabulary: JSON of {piece: id}.
            merges: a pair of pieces a line, the most frequent first.
            more: further pieces by id, into which no text is cut.

        Raises:
            UserError: one of them is not what it should be.
        """
        if vocabulary == merges:
            return cls.of_json(tokenizer_json.read(vocabulary))
        ids, pairs = _read_ids(vocabulary), _split_merges(read_text(merges))
        return cls.of(ids | dict(more or {}), pairs, (vocabulary, merges))

    @classmethod
    def of_json(cls, whole: tokenizer_json.TokenizerJson) -> Self:
        """Builds the tokenizer of a tokenizer.json, pieces that it adds too.

        Raises:
            UserError: it is of another kind, or merges pieces otherwise.
        """
        _check_rules(whole, cls.ending)
        where = Path(whole.where)
        return cls.of(*whole.read_merges(), (where, where))

    @classmethod
    def of(cls, ids: Mapping[str, int], pairs: Iterable[tuple[str, str]], where: Files) -> Self:
        """Builds the tokenizer of the contents of two files.

        Args:
            ids: {piece: id}.
            pairs: two pieces that make a third.
            where: the files, for errors.

        Raises:
            UserError: the ids are not 0, 1, 2 ..., or a piece is missing.
        """
        pairs = list(pairs)
        _check_contents(ids, pairs, where, cls.needed)
        return cls(sorted(ids, key=ids.__getitem__), pairs)

    @classmethod
    def _settings(cls, V: int, model: str, sample: int) -> dict[str, Any]:
        check_sample(sample)
        if not model:
            return {"V": V, "sample": sample}
        # Known by their content: the files may lie elsewhere on another machine.
        texts = [read_text(file) for file in _find_files(model, cls.published)]
        return {"V": V, "model": hashlib.sha256("\0".join(texts).encode()).hexdigest()}


def _count_whole(folder: Path) -> int:
    path = folder / TRAITS  # or Hugging Face's file of that name, which has none
    traits = json_files.read_json(path) if path.exists() else {}
    return traits.get("whole", 0) if isinstance(traits, dict) else 0


def _read_ids(path: Path) -> dict[str, int]:
    try:
        ids = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise _ids_error(path) from error
    if not isinstance(ids, dict):
        raise _ids_error(path)
    return ids


def _ids_error(path: Path) -> UserError:
    return UserError(f"{path}: is not a table of pieces and ids from 0 on")


def _split_merges(text: str) -> list[tuple[str, str]]:
    lines = text.removesuffix("\n").split("\n")
    # A line of merges may begin with "#", too: only the header is dropped.
    lines = lines[1:] if lines[0].startswith("#version") else lines
    pairs = (line.removesuffix("\r").partition(" ") for line in lines)
    return [(one, two) for one, _, two in pairs]


def _find_files(model: str, published: tuple[str, str]) -> Files:
    """Finds the two files in a folder, by the authors' names or those of `save`."""
    folder = Path(model).expanduser()
    if folder.is_file():
        return folder, folder  # a tokenizer.json holds both
    for names in (published, SAVED):
        vocabulary, merges = (folder / name for name in names)
        if vocabulary.exists() and merges.exists():
            if names == SAVED and _count_whole(folder):
                raise UserError(
                    f"tokens.model={model}: these two files do not say which pieces are whole "
                    f"words: set tokens.name=saved and tokens.folder={model}"
                )
            return vocabulary, merges
    pairs = ", nor ".join(" and ".join(names) for names in (published, SAVED))
    raise UserError(f"tokens.model={model}: there is no {pairs} in this folder")


def _check_contents(
    ids: Mapping[str, int], pairs: Iterable[tuple[str, str]], where: Files, needed: Iterable[str]
) -> None:
    vocabulary, merges = where
    # Ids are rows of an embedding table: none is missing, and none stands for two pieces.
    if {*map(type, ids.values())} - {int} or {*ids.values()} != {*range(len(ids))}:
        raise _ids_error(vocabulary)
    if missing := {*needed} - ids.keys():
        raise UserError(f"{vocabulary}: there is no {min(missing)!r} in it")
    for one, two in pairs:
        # A line of merges.txt with three words would not say which are the two.
        if " " in one + two or not {one, two, one + two} <= ids.keys():
            raise UserError(f"{merges}: {f'{one} {two}'!r} are not two pieces that make a third")


def _check_rules(whole: tokenizer_json.TokenizerJson, ending: str) -> None:
    model = whole.read_model("BPE")
    rules = {name: model.get(name) or "" for name in OTHER_RULES}
    rules |= {"end_of_word_suffix": model.get("end_of_word_suffix", ending) or ""}
    for name, rule in rules.items():
        if rule != (usual := ending if name == "end_of_word_suffix" else ""):
            raise UserError(
                f"{whole.where}: {name} is {rule!r}, and only {usual!r} can be computed here"
            )
