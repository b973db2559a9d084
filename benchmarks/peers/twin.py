"""Trains the PyTorch twin of a classifier on the arrays that `benchmarks.twin` exports.

    python -m benchmarks.peers.twin job.json

The file says where the arrays are and where the logits of every evaluation go.  It needs torch,
which may live under a Python of its own: nothing here or below imports JAX.
"""

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.peers.classifier import Classifier
from benchmarks.peers.job_arrays import read_splits
from benchmarks.peers.updates import Update


def train(
    job: Mapping[str, Any], splits: Mapping[str, Mapping[str, np.ndarray]], rows_VD: Any = None
) -> tuple[list[int], dict[str, np.ndarray]]:
    """Trains a network, and evaluates it as often as ours is.

    Args:
        job: fields of `benchmarks.twin.describe`.
        splits: tokens_BL, lengths_B and label_B of each, "train" among them.
        rows_VD: what the words' vectors begin with; None: they are drawn.

    Returns:
        (steps of the evaluations, logits [evaluations, rows, C] of each other split)
    """
    torch.manual_seed(job["seed"])
    model = Classifier(job["model"], job["head"])
    if rows_VD is not None:
        model.encoder.words.place(rows_VD)
    update = Update(model, job["optim"], fused=True)
    began, last, every = time.monotonic(), job["optim"]["steps"], job["eval_every"]
    steps: list[int] = []
    logits: dict[str, list[np.ndarray]] = {name: [] for name in splits if name != "train"}
    batches = iter_batches(splits["train"], job["B"])
    for step in range(1, last + 1):
        batch = next(batches)
        loss = functional.cross_entropy(model(*read_rows(batch)), to_tensor(batch["label_B"]))
        update(loss)
        if step == last or (every and step % every == 0):
            print(
                f"step {step} of {last}: loss {loss.item():.4f}, {time.monotonic() - began:.0f} s",
                file=sys.stderr,
            )
            steps.append(step)
            for name, parts in logits.items():
                parts.append(predict(model, splits[name], job["eval_B"]))
    return steps, {name: np.stack(parts) for name, parts in logits.items()}


def iter_batches(rows: Mapping[str, np.ndarray], B: int) -> Iterator[dict[str, np.ndarray]]:
    """Yields batches for ever, in a new order each epoch; the next one completes the last."""
    order = torch.empty(0, dtype=torch.long)
    while True:
        while len(order) < B:
            order = torch.cat([order, torch.randperm(len(rows["label_B"]))])
        index, order = order[:B].numpy(), order[B:]
        yield {name: x[index] for name, x in rows.items()}


def read_rows(batch: Mapping[str, np.ndarray]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the tokens, padded to the longest row alone, and the lengths."""
    longest = batch["lengths_B"].max()
    return to_tensor(batch["tokens_BL"][:, :longest]), to_tensor(batch["lengths_B"])


def to_tensor(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x.astype(np.int64))


@torch.no_grad()
def predict(model: Classifier, rows: Mapping[str, np.ndarray], B: int) -> np.ndarray:
    """Computes the logits of all rows, in their order."""
    model.eval()
    parts = [
        model(*read_rows({name: x[first : first + B] for name, x in rows.items()})).numpy()
        for first in range(0, len(rows["tokens_BL"]), B)
    ]
    model.train()
    return np.concatenate(parts)


def train_job(path: str) -> None:
    job = json.loads(Path(path).read_text())
    torch.set_num_threads(job["threads"])
    splits = read_splits(job["arrays"])
    rows_VD = splits.pop("", {}).get("rows_VD")
    steps, logits = train(job, splits, rows_VD)
    np.savez(job["logits"], steps=np.array(steps), **logits)  # type: ignore[arg-type]


if __name__ == "__main__":
    train_job(sys.argv[1])
