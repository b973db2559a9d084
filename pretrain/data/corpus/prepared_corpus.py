"""Reads and writes a prepared corpus: flat arrays mapped from disk, and its split by document.

    tokens.bin      all documents, each with its <eod>; uint16, or uint32 if V > 65536
    documents.bin   int64 [documents + 1], where each begins in `tokens`; the last is the end
    sentences.bin   int64 [sentences + 1], the same; a document always begins a sentence
    words.bin       int64 [documents], white-space separated words of the original text
    bytes.bin       int64 [documents], UTF-8 bytes of the original text
    counts.bin      int64 [V], how often each token occurs
    tokenizer/      the tokenizer that made them
    manifest.json   counts, options, the sha256 of everything, how many documents each input has;
                    written last

None of it depends on batch size, hosts, length or masks.  All of it is compared with those sha256
when it is opened, see `digests`.
"""

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pretrain.data import tokenizers
from pretrain.data.corpus import digests
from pretrain.data.corpus.digests import damage_error
from pretrain.data.tokenizers import registry, saved_files
from pretrain.runtime import json_files
from pretrain.runtime.errors import UserError

MANIFEST = "manifest.json"
BY_INPUT = "documents_of_inputs"  # in the manifest: a number for each input, in their order
ARRAYS = ("tokens", "documents", "sentences", "words", "bytes", "counts")


# Compared by identity: arrays have no single truth value.
@dataclass(frozen=True, eq=False)
class Corpus:
    """A prepared corpus, open.

    Attributes:
        tokens, documents, sentences, words, bytes, counts_V: see the module.
        splits: int64 arrays of document numbers in order; "all" is "train" and "held_out".
    """

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
        # It covers all tokens and boundaries, and the tokenizer.
        return self.manifest["fingerprint"]

    def count(self) -> dict[str, int]:
        """Counts its documents, those held out, its words and tokens."""
        counts = {name: self.manifest[name] for name in ("documents", "words", "tokens")}
        return {**counts, "held_out": len(self.splits.get("held_out", ()))}

    @functools.cached_property
    def tokenizer(self) -> tokenizers.Tokenizer:
        return registry.load(self.folder / "tokenizer")


def open_corpus(folder: Path, held_out: float | np.ndarray, verify: bool = False) -> Corpus:
    """Opens a prepared corpus.

    Args:
        folder: the corpus.
        held_out: the share of documents held out, or the numbers of the inputs whose documents are.
        verify: read even its large arrays whole, to compare them with what was written.

    Raises:
        UserError: a file is missing or damaged, or there is no such split.
    """
    # The cheap checks come first: options, then sizes, then contents.
    manifest = _read_manifest(folder)
    if isinstance(held_out, np.ndarray):
        held_out = _number_documents(folder, manifest, held_out)
    splits = split_documents(manifest["documents"], held_out)
    arrays = (_map_array(folder, name, **manifest["arrays"][name]) for name in ARRAYS)
    tokens, documents, sentences, words, sizes, counts_V = arrays
    digests.verify_arrays(folder, manifest["arrays"], whole=verify)
    if saved_files.hash_saved(folder / "tokenizer") != manifest["tokenizer"]:
        name = saved_files.find_damaged_file(folder / "tokenizer")
        file = f"tokenizer/{name}" if name else "a file in tokenizer/"
        raise damage_error(folder, f"{file} is not what was written")
    return Corpus(folder, manifest, tokens, documents, sentences, words, sizes, counts_V, splits)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.exists():
        raise damage_error(folder, f"{MANIFEST} is missing")
    try:
        manifest = json_files.read_sealed(path)
        arrays = {name: manifest["arrays"][name] for name in ARRAYS}
        described = {
            **_count_items(arrays),
            "fingerprint": _hash_contents(manifest["tokenizer"], arrays),
        }
        is_whole = described.items() <= manifest.items()
        is_whole &= all(map(_is_entry, arrays.values()))
    except UserError as error:
        raise damage_error(folder, str(error)) from error
    except (KeyError, TypeError, ValueError) as error:  # an older one has no digest
        raise damage_error(folder, f"{MANIFEST} does not describe it") from error
    if not is_whole:
        raise damage_error(folder, f"{MANIFEST} contradicts itself")
    return manifest


def _is_entry(array: dict[str, Any]) -> bool:
    return np.dtype(array["dtype"]).kind in "iu" and array["size"] >= 0 and bool(array["sha256"])


def write_manifest(folder: Path, manifest: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Writes the manifest: counts, options and inputs, the sha256 of everything."""
    vocabulary = saved_files.hash_saved(folder / "tokenizer")
    sums = {
        name: int(_map_array(folder, name, **arrays[name]).sum()) for name in ("words", "bytes")
    }
    json_files.write_sealed(
        folder / MANIFEST,
        dict(
            **_count_items(arrays),
            **sums,
            fingerprint=_hash_contents(vocabulary, arrays),
            tokenizer=vocabulary,
            arrays=arrays,
            **manifest,
        ),
    )


def _count_items(arrays: dict[str, Any]) -> dict[str, int]:
    return {
        "documents": arrays["documents"]["size"] - 1,
        "sentences": arrays["sentences"]["size"] - 1,
        "tokens": arrays["tokens"]["size"],
        "V": arrays["counts"]["size"],
    }


def _hash_contents(vocabulary: str, arrays: dict[str, Any]) -> str:
    # In the order of ARRAYS, whatever the order in the manifest.
    contents = [vocabulary, *(arrays[name]["sha256"] for name in ARRAYS)]
    return hashlib.sha256(" ".join(contents).encode()).hexdigest()


def _map_array(folder: Path, name: str, *, dtype: str, size: int, **_digest: str) -> np.ndarray:
    path = folder / f"{name}.bin"
    actual = path.stat().st_size if path.exists() else 0
    expected = size * np.dtype(dtype).itemsize
    if actual != expected:
        raise damage_error(folder, f"{path.name} holds {actual} bytes, not {expected}")
    # A plain array: every slice of a memmap is a memmap, which takes longer to make.
    return np.asarray(np.memmap(path, dtype, "r"))


def _number_documents(folder: Path, manifest: dict[str, Any], inputs_N: np.ndarray) -> np.ndarray:
    """Returns the numbers of the documents of some inputs."""
    counts, inputs = manifest.get(BY_INPUT), len(manifest["inputs"])
    if counts is None and manifest["documents"] == inputs:
        counts = [1] * inputs  # of before they were counted, and a file was a document
    if counts is None:
        raise UserError(
            f"{folder} is of before documents were counted by file: delete it, and it is made anew"
        )
    every = np.repeat(np.arange(inputs), counts)
    return np.flatnonzero(np.isin(every, inputs_N))


def split_documents(documents: int, held_out: float | np.ndarray) -> dict[str, np.ndarray]:
    """Splits documents evenly: every n-th is held out, whatever is in it.

    Args:
        documents: how many there are.
        held_out: the share to hold out, 0 makes no such split; or the numbers of those to hold out.

    Returns:
        {"train", "held_out", "all"}: document numbers in order.

    Raises:
        UserError: one side would have no document.
    """
    every = np.arange(documents)
    if isinstance(held_out, np.ndarray):
        if not 0 < len(held_out) < documents:
            raise UserError(f"held_out_files: they hold {len(held_out)} of {documents} documents")
        return {"train": np.delete(every, held_out), "held_out": held_out, "all": every}
    if not held_out:
        return {"train": every, "all": every}
    some = max(1, round(documents * held_out))
    if not 0 < held_out < 1 or some >= documents:
        raise UserError(
            f"held_out={held_out} of {documents} documents leaves a side empty: training and "
            "held-out text need at least one each; more files, or --config.corpus.documents=blank, "
            "make more; --config.corpus.held_out=0.0 holds nothing out"
        )
    # In the middle of each stretch; no random numbers, which another version may draw otherwise.
    chosen = (np.arange(some) * documents + documents // 2) // some
    return {"train": np.delete(every, chosen), "held_out": chosen, "all": every}
