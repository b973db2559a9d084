"""Runs a PyTorch peer of a classifier: forward, backward and update on the rows that ours reads.

plain   nn.Embedding, nn.Conv1d or nn.LSTM on packed rows, rows padded as ours, PyTorch's optimizer
fast    rows padded to the longest of the batch, and PyTorch's quickest form of everything
"""

import contextlib
import itertools
from typing import Any

import torch
from torch.nn import functional

from benchmarks.contest import synthetic_data, synthetic_rows, worker
from benchmarks.peers import base, twin
from benchmarks.peers.classifier import Classifier
from benchmarks.peers.updates import Update


class Plain:
    """The contender as a user of PyTorch writes it."""

    is_fast = False

    def __init__(self, settings: dict[str, Any]):
        recipe = settings["recipe"]
        torch.set_num_threads(settings["threads"])
        torch.manual_seed(recipe["seed"])
        C = len(recipe["task"]["labels"])
        self.model = Classifier(recipe["model"], recipe["task"]["head"] | {"C": C})
        self.update = Update(self.model, recipe["optim"], fused=self.is_fast)
        # All are made before a clock runs.
        self.batches = itertools.cycle(self.make_batches(recipe))
        self.facts = {"parameters": sum(p.numel() for p in self.model.parameters())}

    def make_batches(self, recipe: dict[str, Any]) -> list[tuple[torch.Tensor, ...]]:
        """Returns tokens, lengths and labels of the batches."""
        rows = synthetic_rows.draw_rows(recipe)
        lengths_N, B = rows["valid_BL"].sum(1), recipe["batches"]["B"]
        batches = []
        for first in range(0, B * synthetic_data.BATCHES, B):
            at = slice(first, first + B)
            # As a collate function does that pads to the longest.
            L = lengths_N[at].max() if self.is_fast else recipe["batches"]["L"]
            arrays = rows["tokens_BL"][at, :L], lengths_N[at], rows["label_B"][at]
            batches.append(tuple(map(twin.to_tensor, arrays)))
        return batches

    def step(self) -> Any:
        tokens_BL, lengths_B, label_B = next(self.batches)
        loss = functional.cross_entropy(self.model(tokens_BL, lengths_B), label_B)
        self.update(loss)
        return loss.detach()

    def finish(self) -> None:
        """Waits for nothing: a CPU computes as it is told."""

    def loss(self, result: Any) -> float:
        return float(result)

    def peak_bytes(self) -> int:
        return worker.resident_peak()

    def profile(self, folder: str) -> contextlib.AbstractContextManager:
        return base.keep_profile(folder)


class Fast(Plain):
    """The contender that is as quick as we can make PyTorch."""

    is_fast = True


if __name__ == "__main__":
    variants = {"plain": Plain, "fast": Fast}
    worker.serve(lambda settings: variants[settings["variant"]](settings))
