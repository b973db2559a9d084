"""A corpus of nothing, for what depends on the shapes of batches alone."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from pretrain.data import batches
from pretrain.data.batches import Batch, Layout

NAMES = ("unk", "bos", "eos", "cls", "sep", "pad", "mask", "eod", "eop")
ROWS = 2  # as few as any layout takes
DOCUMENTS = 8


class Rows:
    """A layout of B rows as wide as those of another: what is asked of it is its shapes.

    `batch` gives one and the same row, whatever the step.
    """

    shuffle = True
    steps_per_epoch = 1

    def __init__(self, like: Layout, B: int):
        self.B, self.L, self.row = B, like.L, like.batch(0, slice(0, 1))

    def batch(self, step: int, rows: slice = slice(None)) -> Batch:
        return self.row

    def fingerprint(self) -> dict[str, Any]:
        return dict(layout="blank", B=self.B, L=self.L)


def rows(*, B: int, L: int, **fields: Any) -> Rows:
    """The shapes of a recipe's `batches` section, without its text.

    Raises:
        UserError: the fields do not fit the layout.
    """
    return Rows(batches.build(corpus=corpus(L), B=ROWS, L=L, **fields), B)


def corpus(L: int) -> SimpleNamespace:
    """What the layouts of `pretrain.data` read of a corpus, enough for a few rows of L."""
    size = 4 * ROWS * L  # of a document
    words = np.full(DOCUMENTS, size)
    return SimpleNamespace(
        tokens=np.full(DOCUMENTS * size, len(NAMES), np.uint16),
        documents=np.arange(DOCUMENTS + 1) * size,
        sentences=np.arange(0, DOCUMENTS * size + 1, 4),
        words=words,
        bytes=words,
        splits=dict(train=np.arange(DOCUMENTS)),
        tokenizer=tokenizer(),
        fingerprint="blank",
    )


def tokenizer() -> SimpleNamespace:
    """Every special token, and one other."""
    pieces = [*NAMES, "a"]
    special = {name: number for number, name in enumerate(NAMES)}
    starts_V = np.ones(len(pieces), bool)
    return SimpleNamespace(V=len(pieces), special=special, word_start_V=starts_V, pieces=pieces)
