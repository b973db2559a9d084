"""A BPE as files: its pieces by id, and the pairs that are merged into them, in order."""

import hashlib
import inspect
import json
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from pretrain.data.tokenizers import TRAITS
from pretrain.data.tokenizers.learning import (
    Encoder,
    Merges,
    check_sample,
    check_size,
    read,
    sampled,
)
from pretrain.errors import UserError

Files = tuple[Path, Path]

SAVED = ("vocab.json", "merges.txt")
HEADER = "#version: 0.2"


@dataclass
class MergeEncoder(Encoder):
    """What GPT-1's and GPT-2's tokenizers share: their files, and where pieces come from."""

    pieces: list[str]
    merges: Merges

    name: ClassVar[str]
    published: ClassVar[tuple[str, str]]  # the files, as the authors named them
    needed: ClassVar[tuple[str, ...]]  # pieces that a vocabulary must have

    @staticmethod
    @abstractmethod
    def settings(V: int, model: str, sample: int) -> dict[str, Any]: ...

    @staticmethod
    @abstractmethod
    def learned(texts: list[str], V: int) -> tuple[list[str], Merges]:
        """(pieces, merges) from the texts, V in all."""

    @classmethod
    def learn(cls, texts: Iterator[str], **fields: Any) -> Self:
        """Learns from the texts, the same pieces each time; or reads the published files.

        Raises:
            UserError: the texts cannot give V pieces, or the published vocabulary has not V.
        """
        bound = inspect.signature(cls.settings).bind(**fields)
        bound.apply_defaults()
        V, model, sample = bound.arguments.values()
        if not model:
            return cls(*cls.learned(sampled(texts, sample), V))
        pieces, merges = cls._read(*cls._files(model))
        check_size(V, pieces, model)
        return cls(pieces, merges)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        vocabulary, merges = (folder / name for name in SAVED)
        vocabulary.write_text(json.dumps({piece: i for i, piece in enumerate(self.pieces)}))
        lines = [HEADER, *(" ".join(pair) for pair in self.merges), ""]
        merges.write_bytes("\n".join(lines).encode())
        (folder / TRAITS).write_text(json.dumps({"name": self.name}))

    @classmethod
    def load(cls, folder: Path) -> Self:
        return cls(*cls._read(folder / SAVED[0], folder / SAVED[1]))

    @classmethod
    def _settings(cls, V: int, model: str, sample: int) -> dict[str, Any]:
        check_sample(sample)
        if not model:
            return {"V": V, "sample": sample}
        texts = [read(file) for file in cls._files(model)]
        return {"V": V, "model": hashlib.sha256("\0".join(texts).encode()).hexdigest()}

    @classmethod
    def _files(cls, model: str) -> Files:
        """The two files in the folder, by the authors' names or those of `save`."""
        folder = Path(model).expanduser()
        for names in (cls.published, SAVED):
            vocabulary, merges = (folder / name for name in names)
            if vocabulary.exists() and merges.exists():
                return vocabulary, merges
        known = ", nor ".join(" and ".join(names) for names in (cls.published, SAVED))
        raise UserError(f"tokens.model={model}: there is no {known} in this folder")

    @classmethod
    def _read(cls, vocabulary: Path, merges: Path) -> tuple[list[str], Merges]:
        """(pieces, merges) of the two files.

        Raises:
            UserError: one of them is not what it should be.
        """
        ids = _ids(vocabulary)
        if missing := {*cls.needed} - ids.keys():
            raise UserError(f"tokens.model={vocabulary}: there is no {min(missing)!r} in it")
        pieces = sorted(ids, key=ids.__getitem__)
        return pieces, [_pair(line, ids, merges) for line in _lines(read(merges))]


def _ids(path: Path) -> dict[str, int]:
    try:
        ids = json.loads(read(path))
        if sorted(ids.values()) == list(range(len(ids))):
            return ids
    except (json.JSONDecodeError, AttributeError, TypeError):
        pass
    raise UserError(f"tokens.model={path}: is not a table of pieces and ids from 0 on")


def _lines(text: str) -> list[str]:
    lines = text.removesuffix("\n").split("\n")
    return lines[1:] if lines[0].startswith("#version") else lines


def _pair(line: str, ids: dict[str, int], path: Path) -> tuple[str, str]:
    one, _, two = line.removesuffix("\r").partition(" ")
    if not {one, two, one + two} <= ids.keys():
        raise UserError(f"tokens.model={path}: {line!r} are not two pieces that make a third")
    return one, two
