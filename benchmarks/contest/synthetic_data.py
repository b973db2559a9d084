"""Text nobody wrote: random tokens as unevenly frequent as words, so that a loss can fall."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np

from pretrain.data.batches import BatchLayout, build
from pretrain.data.tokenizers import SPECIAL_NAMES

SPECIAL = {name: i for i, name in enumerate(SPECIAL_NAMES)}
BATCHES = 4  # taken in turn
SENTENCE, DOCUMENT = 16, 1024  # tokens


@dataclasses.dataclass
class SyntheticCorpus:
    """The fields of a corpus that the layouts of `pretrain.data.batches` read."""

    tokens: np.ndarray
    documents: np.ndarray
    sentences: np.ndarray
    words: np.ndarray
    bytes: np.ndarray
    splits: dict[str, np.ndarray]
    tokenizer: Any
    fingerprint: str = "synthetic"


def draw_tokens(V: int, shape: tuple[int, ...] | int, seed: int = 0) -> np.ndarray:
    """Draws ids above the special ones, the n-th as often as 1 / n (Zipf's law)."""
    below = max(SPECIAL.values())
    chance = np.random.default_rng(seed).random(shape)
    return (below + (V - below) ** chance).astype(np.int32)


def build_corpus(V: int, size: int, seed: int = 0, texts: int = 0) -> SyntheticCorpus:
    """Builds a corpus of `size` tokens, all for training.

    Args:
        texts: of a document, which has a label behind them, see `pretrain.data.batches.clicks`; 0:
            documents are long.
    """
    document = (texts + 1) * SENTENCE if texts else DOCUMENT
    size -= size % document if texts else 0  # a label ends the last one, too
    documents = np.append(np.arange(0, size, document), size)
    words = np.diff(documents) * 3 // 4
    word_start_V = np.random.default_rng(seed).random(V) < 0.75
    tokens = draw_tokens(V, size, seed)
    if texts:
        labels = documents[1:] - SENTENCE
        tokens[labels] = V - 1 - tokens[labels] % 2
    return SyntheticCorpus(
        tokens=tokens,
        documents=documents,
        sentences=np.append(np.arange(0, size, SENTENCE), size),
        words=words,
        bytes=5 * words,
        splits=dict.fromkeys(("train", "all"), np.arange(len(documents) - 1)),
        tokenizer=SimpleNamespace(
            V=V,
            special=SPECIAL,
            word_start_V=word_start_V,
            pieces=list(map(str, range(V))),
            encode=lambda texts: [[V - 1 - int(text)] for text in texts],
        ),
    )


def build_layout(recipe: dict[str, Any]) -> BatchLayout:
    """Builds the recipe's batches of a synthetic corpus."""
    batches = recipe["batches"]
    size = 2 * BATCHES * batches["B"] * max(batches["L"], SENTENCE * SENTENCE)
    corpus = build_corpus(recipe["model"]["V"], size, texts=batches.get("texts", 0))
    return build(corpus=corpus, seed=recipe["seed"], **batches)
