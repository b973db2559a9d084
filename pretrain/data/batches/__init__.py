"""Layouts: what batch `step` is, read from a prepared corpus.

A layout is a class named after its file (`lanes.Lanes`):

    Layout(corpus, documents, *, B, L, ..., seed, shuffle)
        batch(step, rows=slice(None)) -> dict of arrays whose first dimension is the rows
        steps_per_epoch: int          without `shuffle` the layout ends after these
        fingerprint() -> dict         everything a position depends on, to compare on resume

Every batch holds `weight_B` float32 (1 for a row of text, 0 for filler) and the tokens, int32:
`tokens_BL`, or `tokens_BZL` where rows are read in both directions.  `lanes` continue row by row
(XLNet), `windows` are running text in any order (GPT, RoBERTa), `pairs` two segments (BERT),
`bidirectional` continue from either end at once (ELMo); `phases` are two layouts in turn.
"""

import importlib
from typing import Any, Protocol

import numpy as np

from pretrain.runtime.errors import UserError

Batch = dict[str, np.ndarray]


class Layout(Protocol):
    """What a batch is: `batch(step)` is the same whoever asks, and whatever was asked before."""

    B: int  # rows of a batch, over all hosts
    L: int  # tokens of a row
    shuffle: bool
    steps_per_epoch: int

    def batch(self, step: int, rows: slice = slice(None)) -> Batch: ...

    def fingerprint(self) -> dict[str, Any]: ...


def build(name: str, corpus, *, split: str = "train", seed: int = 0, **fields: Any) -> Layout:
    """`build("lanes", corpus, split="train", B=16, ...)` is `lanes.Lanes(corpus, documents, ...)`.

    Training reads the split in an order drawn anew each epoch, for ever; any other split is read
    once, in the order of the corpus.
    """
    if split not in corpus.splits:
        raise UserError(f"split={split!r}: this corpus has {', '.join(corpus.splits)}")
    module = importlib.import_module(f"pretrain.data.batches.{name}")
    layout = getattr(module, name.title(), None)
    if layout is None:
        raise UserError(f"batches.name={name!r}: there is no such layout")
    return layout(corpus, corpus.splits[split], seed=seed, shuffle=split == "train", **fields)
