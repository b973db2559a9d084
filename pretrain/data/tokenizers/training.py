"""Trains WordPiece and the BPEs with the `tokenizers` library, the same each time."""

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
from tokenizers import trainers

from pretrain.data.tokenizers import Offsets, tokenizer_json
from pretrain.data.tokenizers.offsets import make_offsets
from pretrain.runtime.errors import UserError

Merges = list[tuple[str, str]]

COVERAGE = 0.99995  # of the characters of the text have pieces, as with XLNet
SELDOM = 2  # pairs of pieces that occur less often are not merged

# The library's threads do not outlive a fork: a child that counts on them waits for ever.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
os.register_at_fork(after_in_child=lambda: os.environ.update(TOKENIZERS_PARALLELISM="false"))


class Encoder:
    """Encodes and decodes by `_library`, which takes no text for a special token."""

    _library: library.Tokenizer
    special: dict[str, int]

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        encoded = self._library.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(text.ids, np.int32) for text in encoded]

    def offsets(self, texts: list[str]) -> list[Offsets]:
        encoded = self._library.encode_batch(texts, add_special_tokens=False)
        pairs = zip(texts, encoded, strict=True)
        return [make_offsets(text, encoding.ids, encoding.offsets) for text, encoding in pairs]

    def copy_library(self) -> library.Tokenizer:
        """Copies the library's tokenizer, to be changed and saved in Hugging Face's format."""
        return library.Tokenizer.from_str(self._library.to_str())

    def decode(self, ids: Iterable[int]) -> str:
        return self._library.decode([int(i) for i in ids], skip_special_tokens=False)


# --- learning --------------------------------------------------------------------------------


def count_threads() -> int:
    """Counts the threads for a library: as many as the other ones are told to take, or all."""
    named = os.environ.get("RAYON_NUM_THREADS", "")
    return int(named) if named.isdecimal() and int(named) else os.cpu_count() or 1


def learn_pieces(
    texts: list[str],
    blank: library.Tokenizer,
    V: int,
    alphabet: Iterable[str],
    first: Sequence[str] = (),
    last: Sequence[str] = (),
    **marks: str,
) -> tuple[list[str], Merges]:
    """Learns a BPE of V pieces, the same ones in the same order each time.

    Args:
        texts: read twice.
        blank: a tokenizer that cuts text into words; it is changed.
        V: the number of pieces.
        alphabet: the known characters; others are unknown.
        first, last: special pieces, which come before and after all others.
        marks: `continuing_subword_prefix` or `end_of_word_suffix`.

    Returns:
        (pieces, merges).

    Raises:
        UserError: the texts have not V pieces, or too many characters.
    """
    letters = list(alphabet)
    options = dict(initial_alphabet=letters, limit_alphabet=len(letters), **marks)
    # Ids decide between pairs equally frequent, and the library numbers marked characters in
    # the order of a random hash: find them first, without a merge, then give them an order.
    characters, _ = _train(blank, texts, vocab_size=0, **options)
    fixed = [*first, *sorted(characters)]
    if (least := len(fixed) + len(last)) > V:
        raise _size_error(V, f"special tokens and single characters are {least} already")
    options |= dict(vocab_size=V - len(last), min_frequency=SELDOM, special_tokens=fixed)
    pieces, merges = _train(blank, texts, **options)
    if (most := len(pieces) + len(last)) < V:
        raise _size_error(V, f"it has {most} pieces at most")
    return [*pieces, *last], merges


def _train(blank: library.Tokenizer, texts: list[str], **options: Any) -> tuple[list[str], Merges]:
    blank.train_from_iterator(texts, trainers.BpeTrainer(show_progress=False, **options))
    vocabulary = blank.get_vocab(with_added_tokens=False)
    _, merges = tokenizer_json.parse(blank.to_str(), "the learned BPE").read_merges()
    return sorted(vocabulary, key=vocabulary.__getitem__), merges


def _size_error(V: int, reason: str) -> UserError:
    return UserError(f"tokens.V={V}: this corpus cannot give it: {reason}")


def sample_texts(texts: Iterable[str], sample: int) -> list[str]:
    """Samples at most `sample` of the texts uniformly, the same ones each time."""
    # By reservoir sampling (Vitter, 1985), since the number of texts is not known.
    texts, rng = iter(texts), random.Random(0)
    chosen = list(itertools.islice(texts, sample))
    for number, text in enumerate(texts, sample + 1):
        place = int(rng.random() * number)
        if place < sample:
            chosen[place] = text
    return chosen


def rank_characters(texts: Iterable[str]) -> list[str]:
    """Lists the commonest characters, which make up COVERAGE of the texts; no blanks."""
    counts = Counter[str]()
    for text in texts:
        counts.update(text)
    ranked = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))
    shares = np.cumsum([counts[c] for c in ranked])
    return ranked[: np.searchsorted(shares, COVERAGE * shares[-1]) + 1] if ranked else []


# --- files -----------------------------------------------------------------------------------


def read_text(path: Path) -> str:
    """Reads a published file, its line ends unchanged.

    Raises:
        UserError: there is none, or it is not UTF-8.
    """
    try:
        return path.read_bytes().decode()
    except OSError as error:
        raise UserError(f"tokens.model={path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"tokens.model={path}: byte {error.start} is not UTF-8") from error


def check_sample(sample: int) -> None:
    """Raises UserError unless there is a sentence to learn from."""
    if sample < 1:
        raise UserError(f"tokens.sample={sample}: learning needs a sentence at least")


def check_size(V: int, pieces: list[str], model: str) -> None:
    """Raises UserError unless a published vocabulary has V pieces."""
    if len(pieces) != V:
        size = len(pieces)
        raise UserError(f"tokens.V={V}, but {model} has {size} pieces: set V={size}")
