"""Trains the PyTorch twin of an AWD-LSTM on the windows that the command of this name exports.

    python -m benchmarks.peers.language_model_twin job.json

The file says where the windows are and where the losses of every evaluation go.  It needs torch,
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

from benchmarks.peers.awd_lstm import AWDLSTM, compute_losses
from benchmarks.peers.job_arrays import read_splits
from benchmarks.peers.updates import Update

Window = dict[str, torch.Tensor]


def train(
    job: Mapping[str, Any],
    splits: Mapping[str, Mapping[str, np.ndarray]],
    params: Mapping[str, np.ndarray] | None = None,
) -> list[dict[str, float]]:
    """Trains a network, and evaluates it as often as ours is.

    Args:
        job: fields of `benchmarks.language_model_twin.describe`.
        splits: of each, "train" among them, the windows of `iter_windows`; "test" is measured at
            the end alone.
        params: ours by path, to begin with; None: they are drawn.

    Returns:
        The `step` of each evaluation, and the nats per token of each other split.
    """
    torch.manual_seed(job["seed"])
    model = AWDLSTM(output=job["objective"]["dropout"], **job["model"])
    if params:
        model.load(params)
    update = Update(model, job["optim"], fused=True)
    evaluations, states, began = [], None, time.monotonic()
    steps, every = job["optim"]["steps"], job["eval_every"]
    for step, (window, goes_on) in enumerate(iter_windows(splits["train"]), 1):
        states = states if goes_on else None
        losses, states = compute_losses(model, job["objective"], **window, states=states)
        update(sum(losses), float(window["weights_BL"].sum()))
        is_due = step == steps or (every and step % every == 0)
        seconds = time.monotonic() - began
        if is_due or step % 50 == 0:
            say(f"step {step} of {steps}: loss {losses[0].item():.4f}, {seconds:.0f} s")
        if is_due:
            wanted = splits.keys() - ({"train"} if step == steps else {"train", "test"})
            values = {name: evaluate(model, splits[name]) for name in sorted(wanted)}
            evaluations.append({"step": step, "seconds": seconds, **values})
            say(json.dumps(evaluations[-1]))
    return evaluations


def iter_windows(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[Window, bool]]:
    """Yields (the arguments of `compute_losses`, whether rows go on from the window before).

    Args:
        arrays: tokens_BT, next_BT and weights_BT, all windows side by side; ends_S, where each
            ends; continues_S.
    """
    for begin, end, goes_on in zip(
        [0, *arrays["ends_S"]], arrays["ends_S"], arrays["continues_S"], strict=False
    ):
        part = {x: arrays[f"{x}_BT"][:, begin:end] for x in ("tokens", "next", "weights")}
        yield (
            {
                "tokens_BL": torch.from_numpy(part["tokens"].astype(np.int64)),
                "next_BL": torch.from_numpy(part["next"].astype(np.int64)),
                "weights_BL": torch.from_numpy(part["weights"].astype(np.float32)),
            },
            bool(goes_on),
        )


@torch.no_grad()
def evaluate(model: AWDLSTM, arrays: Mapping[str, np.ndarray]) -> float:
    """Computes the mean of the cross entropy over a text, in nats."""
    model.eval()
    total, states, no_penalties = 0.0, None, {"ar": 0.0, "tar": 0.0}
    for window, goes_on in iter_windows(arrays):
        states = states if goes_on else None
        (loss, *_), states = compute_losses(model, no_penalties, **window, states=states)
        total += float(loss * window["weights_BL"].sum())
    model.train()
    return total / float(arrays["weights_BT"].sum())


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def train_job(path: str) -> None:
    job = json.loads(Path(path).read_text())
    torch.set_num_threads(job["threads"])
    Path(job["losses"]).write_text(json.dumps(train(job, read_splits(job["windows"]))))


if __name__ == "__main__":
    train_job(sys.argv[1])
