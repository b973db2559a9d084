"""Data in three stages, each useful alone: documents, a prepared corpus, batches.

    source     documents as a stream of bounded pieces of text    sources, finding, records, text,
                                                                      sentences
    prepare    a flat array of tokens and boundaries, on disk     prepare, parts, corpus, digests,
                                                                      tokenizers
    batches    a layout says what batch `step` is; Grain reads    lanes, windows, pairs,
                                                                      directions, stream

A prepared corpus knows nothing of batch size, length, hosts or masks.  A layout is a class named
after its file (`lanes.Lanes`): a pure function of (corpus, documents, fields, seed, step), so the
position of a run is one number, the next step:

    Layout(corpus, documents, *, B, L, ..., seed, shuffle)
        batch(step, rows=slice(None)) -> dict of arrays whose first dimension is the rows
        steps_per_epoch: int          without `shuffle` the layout ends after these
        fingerprint() -> dict         everything a position depends on, to compare on resume

Every batch holds `weight_B` float32 (1 for a row of text, 0 for filler) and the tokens, int32:
`tokens_BL`, or `tokens_BZL` where rows are read in both directions.  `lanes` continue row by row
(XLNet), `windows` are running text in any order (GPT, RoBERTa), `pairs` two segments (BERT),
`directions` continue from either end at once (ELMo); `phases` are two layouts in turn.
Each config section is the keyword arguments of one function here:

    corpus = data.load(**config.corpus)
    layout = data.training(corpus, config.seed, config.optim.steps, config.batches)
    held_out = data.build(corpus=corpus, split="held_out", **config.batches)
    for step, batch in stream(held_out, start=0, rows=slice(...)):      # data.stream
"""

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from pretrain.errors import UserError

Batch = dict[str, np.ndarray]


class Layout(Protocol):
    """What a batch is: `batch(step)` is the same whoever asks, and whatever was asked before."""

    B: int  # rows of a batch, over all hosts
    L: int  # tokens of a row
    shuffle: bool
    steps_per_epoch: int

    def batch(self, step: int, rows: slice = slice(None)) -> Batch: ...

    def fingerprint(self) -> dict[str, Any]: ...


def load(**fields: Any):
    """The `Corpus` of a config section, prepared now if it is not yet: see `prepare.prepare`."""
    from pretrain.data import prepare

    return prepare.prepare(**fields)


def build(name: str, corpus, *, split: str = "train", seed: int = 0, **fields: Any) -> Layout:
    """`build("lanes", corpus, split="train", B=16, ...)` is `lanes.Lanes(corpus, documents, ...)`.

    Training reads the split in an order drawn anew each epoch, for ever; any other split is read
    once, in the order of the corpus.
    """
    if split not in corpus.splits:
        raise UserError(f"split={split!r}: this corpus has {', '.join(corpus.splits)}")
    layout = getattr(importlib.import_module(f"pretrain.data.{name}"), name.title())
    return layout(corpus, corpus.splits[split], seed=seed, shuffle=split == "train", **fields)


def training(
    corpus, seed: int, steps: int, batches: Mapping[str, Any],
    first: Mapping[str, Any] | None = None,
):  # fmt: skip
    """The layout to train on; two in turn (`phases.Phases`) where there is a `first`.

    Args:
        steps: of the whole run.
        batches: name and fields of the layout, see `build`.
        first: how they differ in the first `share` of the steps, e.g. {"share": 0.9, "L": 128}.
    """
    then = build(corpus=corpus, seed=seed, **batches)
    if first is None:
        return then
    from pretrain.data.phases import Phases

    fields = {**batches, **first}
    share = fields.pop("share", None)
    if share is None or not 0 < share < 1:
        raise UserError(f"first.share={share}: it is the share of the steps, between 0 and 1")
    return Phases(build(corpus=corpus, seed=seed, **fields), then, round(share * steps))
