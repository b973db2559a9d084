"""Text nobody wrote: random tokens as unevenly frequent as words, so that a loss can fall."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from pretrain.data.batches import Layout, build

NAMES = ("unk", "bos", "eos", "cls", "sep", "pad", "mask", "eod", "eop")
SPECIAL = {name: i for i, name in enumerate(NAMES)}
BATCHES = 4  # taken in turn
SENTENCE, DOCUMENT = 16, 1024  # tokens


def tokens(V: int, shape: tuple[int, ...] | int, seed: int = 0) -> np.ndarray:
    """Ids above the special ones; the n-th has a frequency in proportion to 1 / n (Zipf's law)."""
    below = max(SPECIAL.values())
    chance = np.random.default_rng(seed).random(shape)
    return (below + (V - below) ** chance).astype(np.int32)


def corpus(V: int, size: int, seed: int = 0) -> SimpleNamespace:
    """What the layouts of `pretrain.data` read of a corpus: `size` tokens, all for training."""
    documents = np.append(np.arange(0, size, DOCUMENT), size)
    words = np.diff(documents) * 3 // 4
    word_start_V = np.random.default_rng(seed).random(V) < 0.75
    return SimpleNamespace(
        tokens=tokens(V, size, seed),
        documents=documents,
        sentences=np.append(np.arange(0, size, SENTENCE), size),
        words=words,
        bytes=5 * words,
        splits=dict.fromkeys(("train", "all"), np.arange(len(documents) - 1)),
        tokenizer=SimpleNamespace(
            V=V, special=SPECIAL, word_start_V=word_start_V, pieces=list(map(str, range(V)))
        ),
        fingerprint="noise",
    )


def layout(recipe: dict[str, Any]) -> Layout:
    """The recipe's batches, read from noise."""
    batches = recipe["batches"]
    size = 2 * BATCHES * batches["B"] * batches["L"]
    made = corpus(recipe["model"]["V"], size)
    return build(corpus=made, seed=recipe["seed"], **batches)
