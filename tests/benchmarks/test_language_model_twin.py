"""The twin of an AWD-LSTM reads our windows and takes our steps."""

import json
import subprocess

import jax
import numpy as np
import pytest

import modules
from benchmarks import language_model_twin as twin
from benchmarks.contest import runner
from configs import awd_lstm
from pretrain import objectives
from pretrain.checkpoint import named_leaves
from pretrain.data import batches, prepare
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime.errors import UserError
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from pretrain.training.metrics import compute_means
from tests.support import corpora, torch_peer

SMALL = {
    "corpus.held_out_files": "held_out.txt",
    "corpus.tokens.types": 400,
    "batches.B": 3,
    "batches.L": 12,
    "batches.bptt": 9,
    "batches.lengths": (10,),
    "evals.held_out.B": 2,
    "model.D": 6,
    "model.U": 8,
    "objective.dropout": 0.0,
    "execution.loss_chunks": 1,
    "optim.steps": 12,
    "optim.lr": 5.0,
    "optim.l2": 0.01,
    "optim.lr_tokens": 27,
    "train.eval_every": 3,
}
CODE = """
import json, sys
import numpy as np
from benchmarks.peers import language_model_twin as twin
from benchmarks.peers.job_arrays import read_splits
job = json.loads(sys.stdin.readline())
params = dict(np.load(job["params"]))
print(json.dumps(twin.train(job, read_splits(job["windows"]), params)))
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """A recipe of a few words, without dropout."""
    folder = tmp_path_factory.mktemp("text")
    for seed, name in enumerate(("held_out", "text")):
        (folder / f"{name}.txt").write_text(corpora.prose(seed, sentences=20 + 20 * seed))
    config = awd_lstm.get_config("wikitext2_mini")
    config.update_from_flattened_dict(SMALL)
    config.corpus.update(source=f"text:{folder}/*.txt", cache=str(folder))
    config.model.update(dict.fromkeys(("dropouti", "dropouth", "wdrop"), 0.0))
    return config


@pytest.fixture(scope="module")
def corpus(config):
    return prepare.prepare(**config.corpus)


def train_ours(config, corpus, path):
    """Our held-out losses, as often as the recipe evaluates; the first weights are in `path`."""
    train = batches.build(corpus=corpus, seed=config.seed, **config.batches)
    held_out = batches.build(corpus=corpus, **{**config.batches, **config.evals.held_out})
    objective = objectives.build(
        backbone=modules.build(**config.model),
        head=config.head,
        special=corpus.tokenizer.special,
        **config.objective,
    )
    layout = Layout(make_mesh(devices=jax.devices()[:1]))
    steps = Steps(objective, optimizer.make(**config.optim)[0], layout, [train], seed=0)
    state, losses = steps.init(), []
    np.savez(path, **{k: np.asarray(x) for k, x in named_leaves.flatten(state.params).items()})
    for step in range(config.optim.steps):
        state, _ = steps.train(state, layout.shard_batch(train.batch(step), train.B))
        if (step + 1) % config.train.eval_every == 0:
            sums = steps.evaluate(state.params, held_out, lambda: False)
            losses.append(compute_means(sums)["loss"])
    return losses


def test_pytorch_takes_our_steps_on_our_windows(config, corpus, tmp_path):
    torch_peer.skip_without_torch()
    windows, params = tmp_path / "windows.npz", tmp_path / "params.npz"
    ours = train_ours(config, corpus, params)
    np.savez(windows, **twin.export_windows(config, corpus))
    job = twin.describe(config) | {"windows": str(windows), "params": str(params)}
    command = [torch_peer.PEER_PYTHON, "-c", CODE]
    line = json.dumps(job)
    done = subprocess.run(command, cwd=runner.ROOT, input=line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    evaluations = json.loads(done.stdout)
    assert [x["step"] for x in evaluations] == [3, 6, 9, 12]
    np.testing.assert_allclose([x["held_out"] for x in evaluations], ours, rtol=1e-5)
    assert ours[-1] < ours[0] - 0.05


def test_an_epoch_s_windows_hold_its_text_once(config, corpus):
    layout = batches.build(corpus=corpus, **{**config.batches, **config.evals.held_out})
    arrays = twin.list_windows("text", layout, layout.steps_per_epoch)
    text = arrays["text/next_BT"][arrays["text/weights_BT"]]
    assert len(text) == layout.size
    assert arrays["text/continues_S"].tolist() == [False, *[True] * (layout.steps_per_epoch - 1)]
    assert arrays["text/ends_S"][-1] == arrays["text/tokens_BT"].shape[1]


def test_a_recipe_that_could_average_is_refused(config):
    changed = config.copy_and_resolve_references()
    changed.train.eval_every = 1
    with pytest.raises(UserError, match="a twin takes no average, and runs to 6 evaluations"):
        twin.describe(changed)
