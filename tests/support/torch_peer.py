"""A classifier of ours and its peer in PyTorch, which begins with our weights.

PEER_PYTHON in the environment names the Python that has torch, if this one has not.
"""

import atexit
import functools
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import modules
from benchmarks.contest import sections
from benchmarks.contest.options import has_packages
from benchmarks.contest.runner import ROOT
from finetune import encoders
from finetune.inputs.batches import Examples
from finetune.tasks import classify
from modules.heads.classifier import Classifier
from pretrain.checkpoint import named_leaves
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps

PEER_PYTHON = os.environ.get("PEER_PYTHON", sys.executable)
B, L, V, C = 8, 9, 30, 3
CODE = """
import json, sys, numpy as np, torch
from torch.nn import functional
from benchmarks.peers import twin
from benchmarks.peers.classifier import Classifier
from benchmarks.peers.updates import Update
for line in sys.stdin:
    job = json.loads(line)
    arrays = dict(np.load(job["path"]))
    rows = {name: arrays.pop(name) for name in ("tokens_BL", "lengths_B", "label_B")}
    model = Classifier(job["model"], job["head"])
    model.load(arrays)
    update = Update(model, job["optim"], job["fused"])
    logits, losses = twin.predict(model, rows, 3), []
    label_B = twin.to_tensor(rows["label_B"])
    for _ in range(job["steps"]):
        loss = functional.cross_entropy(model(*twin.read_rows(rows)), label_B)
        losses.append(float(loss))
        update(loss)
    print(json.dumps({"logits": logits.tolist(), "losses": losses}), flush=True)
"""


@functools.cache
def start_peer():
    """One process for all comparisons: to import torch takes seconds."""
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    peer = subprocess.Popen([PEER_PYTHON, "-c", CODE], cwd=ROOT, text=True, **pipes)
    atexit.register(peer.kill)
    return peer


def skip_without_torch():
    """Skips the test where no Python has torch."""
    if not has_packages(PEER_PYTHON, "torch"):
        pytest.skip(f"no torch in {PEER_PYTHON}: name another in PEER_PYTHON")


def compare(folder, model, pool="max", steps=0, fused=True, **optim):
    """Trains both on the same rows from the same weights, without dropout.

    Args:
        model: the section `model`, without V.
        optim: the section `optim`.

    Returns:
        (our logits and losses, those of PyTorch)
    """
    backbone = modules.build(**model, V=V)
    head = Classifier(C, pool, "none", dropout=0.0, scale=1.0)
    task = classify.Task(backbone, encoders.build(backbone), head)
    rng = np.random.default_rng(0)
    lengths_B = np.append(rng.integers(1, L, B - 1), L)
    valid_BL = np.arange(L) < lengths_B[:, None]
    rows = dict(
        tokens_BL=(rng.integers(1, V, (B, L)) * valid_BL).astype(np.int32),
        valid_BL=valid_BL,
        label_B=rng.integers(0, C, B).astype(np.int32),
    )
    data = Examples(rows, B=B, L=L)
    optim = sections.resolve_optim(dict(name="sgd", lr=0.1, steps=9, decay="constant") | optim)
    layout = Layout(make_mesh())
    trainer = Steps(task, optimizer.make(**optim)[0], layout, [data], seed=0)
    state = trainer.init()
    # Biases and queries begin at 0, where a mistake would not show.
    draw = lambda x: x + 0.3 * jax.random.normal(jax.random.key(x.size), x.shape)  # noqa: E731
    state = state.replace(params=jax.tree.map(draw, state.params))
    start = {name: np.asarray(x) for name, x in named_leaves.flatten(state.params).items()}
    logits_BC = trainer.predict(state.params, data, lambda: False)["logits_BC"]
    losses = []
    for _ in range(steps):
        state, metrics = trainer.train(state, layout.shard_batch(data.batch(0), B))
        loss = metrics.sums["loss"]
        losses.append(float(loss.total / loss.weight))
    path = folder / "peer.npz"
    labels = dict(tokens_BL=rows["tokens_BL"], label_B=rows["label_B"])
    np.savez(path, **start, **labels, lengths_B=lengths_B)
    job = dict(path=str(path), optim=optim, steps=steps, fused=fused)
    job["head"] = sections.resolve_fields(head)
    job["model"] = sections.resolve_fields(backbone) | {"name": model["name"]}
    print(json.dumps(job), file=start_peer().stdin, flush=True)
    found = json.loads(start_peer().stdout.readline())
    return (logits_BC, losses), (np.array(found["logits"]), found["losses"])
