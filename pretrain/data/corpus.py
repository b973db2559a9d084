"""A prepared corpus: flat arrays mapped from disk, and its split by document.

    tokens.bin      all documents, each with its <eod>; uint16, or uint32 if V > 65536
    documents.bin   int64 [documents + 1], where each begins in `tokens`; the last is the end
    sentences.bin   int64 [sentences + 1], the same; a document always begins a sentence
    words.bin       int64 [documents], white-space separated words of each one's original text
    bytes.bin       int64 [documents], UTF-8 bytes of the same
    counts.bin      int64 [V], how often each token occurs
    tokenizer/      what made them
    manifest.json   counts, options, the sha256 of everything; written last

None of it depends on batch size, hosts, length or masks.
"""

import functools
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pretrain.data import tokenizers
from pretrain.errors import UserError

MANIFEST = "manifest.json"
ARRAYS = ("tokens", "documents", "sentences", "words", "bytes", "counts")


@dataclass(frozen=True, eq=False)
class Corpus:
    """`splits` names arrays of document numbers in order: "all" is "train" and "held_out"."""

    folder: Path
    manifest: dict[str, Any]
    tokens: np.ndarray
    documents: np.ndarray
    sentences: np.ndarray
    words: np.ndarray
    bytes: np.ndarray
    counts_V: np.ndarray
    splits: dict[str, np.ndarray]

    @property
    def fingerprint(self) -> str:
        """sha256 over all tokens and boundaries, and the tokenizer."""
        return self.manifest["fingerprint"]

    @functools.cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        return tokenizers.load(self.folder / "tokenizer")


def read(folder: Path, held_out: float) -> Corpus:
    """Opens a prepared corpus, reading next to nothing of it.

    Raises:
        UserError: a file is missing or not of the size the manifest says, or no such split.
    """
    if not (folder / MANIFEST).exists():
        raise _damaged(folder, f"{MANIFEST} is missing")
    manifest = json.loads((folder / MANIFEST).read_text())
    splits = split(manifest["documents"], held_out)
    arrays = (_map(folder, name, **manifest["arrays"][name]) for name in ARRAYS)
    tokens, documents, sentences, words, sizes, counts_V = arrays
    return Corpus(folder, manifest, tokens, documents, sentences, words, sizes, counts_V, splits)


def write_manifest(folder: Path, manifest: dict[str, Any], arrays: dict[str, Any]) -> None:
    """The last file of a corpus: its counts, how it was made, the sha256 of everything."""
    vocabulary = tokenizers.digest(folder / "tokenizer")
    contents = [vocabulary, *(arrays[name]["sha256"] for name in ARRAYS)]
    counts = {
        "documents": arrays["documents"]["size"] - 1,
        "sentences": arrays["sentences"]["size"] - 1,
        "tokens": arrays["tokens"]["size"],
        "words": int(_map(folder, "words", **arrays["words"]).sum()),
        "bytes": int(_map(folder, "bytes", **arrays["bytes"]).sum()),
        "V": arrays["counts"]["size"],
    }
    fingerprint = hashlib.sha256(" ".join(contents).encode()).hexdigest()
    whole = dict(**counts, fingerprint=fingerprint, tokenizer=vocabulary, arrays=arrays, **manifest)
    (folder / MANIFEST).write_text(json.dumps(whole, indent=1))


def _map(folder: Path, name: str, *, dtype: str, size: int, **_digest: str) -> np.ndarray:
    path = folder / f"{name}.bin"
    found = path.stat().st_size if path.exists() else 0
    expected = size * np.dtype(dtype).itemsize
    if found != expected:
        raise _damaged(folder, f"{path.name} holds {found} bytes, not {expected}")
    return np.asarray(np.memmap(path, dtype, "r"))


def _damaged(folder: Path, how: str) -> UserError:
    return UserError(f"{folder} is damaged: {how}; remove it and the next run makes it again")


def split(documents: int, held_out: float) -> dict[str, np.ndarray]:
    """Every so-many-th document is held out: it depends on these two numbers alone.

    With `held_out=0` there is no such split: "train" and "all" are every document.

    Raises:
        UserError: one side would have no document.
    """
    every = np.arange(documents)
    if not held_out:
        return {"train": every, "all": every}
    some = max(1, round(documents * held_out))
    if not 0 < held_out < 1 or some >= documents:
        raise UserError(
            f"held_out={held_out} of {documents} documents leaves a side empty: training and "
            "held-out text need at least one each; more files, or documents='blank', make more; "
            "held_out=0 holds nothing out"
        )
    chosen = (np.arange(some) * documents + documents // 2) // some
    return {"train": np.delete(every, chosen), "held_out": chosen, "all": every}
