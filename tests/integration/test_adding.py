"""Everything that a recipe names can be added from outside: here from a folder on PYTHONPATH.

The parts are in tests/support/own_parts, one of each kind.  They are copied out of the repository,
so that nothing in it knows them.
"""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest

from pretrain.formats import npz
from pretrain.training.reports import metrics_file
from tests.support import commands, corpora

ROOT = pathlib.Path(__file__).parents[2]
PARTS = ROOT / "tests" / "support" / "own_parts"
RECIPE = '''
from configs import gpt2
from ml_collections import ConfigDict

def get_config():
    """Returns a recipe whose objective, backbone, batches, text format and hook are our own."""
    config = gpt2.get_config("mini")
    config.corpus.update(source="text:corpus.txt", documents="blank", held_out=0.2, cache="data")
    config.corpus.tokens.V = 270
    config.batches = dict(name="own_parts.beginnings", B=8, L=16)
    config.evals = dict(held_out=dict(split="held_out"))
    config.model = ConfigDict(dict(name="own_parts.averages", V=270, D=16, N=2))
    config.objective = ConfigDict(dict(name="own_parts.prefix_lm", share=0.5))
    config.execution = ConfigDict()
    config.text_format = "own_parts.closed_texts"
    plateau = dict(name="own_parts.plateau", loss="held_out/loss", at_least=99.0)
    config.hooks = ConfigDict(dict(plateau=plateau))
    config.optim.update(lr=1e-2, steps=60, warmup=2, decay="constant")
    config.train.update(log_every=1, eval_every=10, save_every=30)
    return config
'''
TASK = '''
from configs.finetune import common

def get_config():
    """Returns a recipe of a task of our own, on the model of our own."""
    config = common.base()
    config.data = dict(format="table", train="train.tsv", dev="train.tsv", texts=("text",),
                       label="label")
    config.task = dict(name="own_parts.multi_label", encoder=common.encoder(),
                       head=dict(dropout=0.0))
    config.batches = dict(B=8, L=16, eval_B=8)
    config.epochs = 30
    config.optim.lr = 5e-2
    config.train.update(best="dev/accuracy", eval_every=20, save_every=20)
    return config
'''


class Outside:
    """A folder outside the repository, in which a user works."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        shutil.copytree(PARTS, folder / "own_parts")
        (folder / "corpus.txt").write_text(corpora.prose(0, sentences=96, per_paragraph=4))
        (folder / "recipe.py").write_text(RECIPE)
        (folder / "task.py").write_text(TASK)
        rows = ["text\tlabel", *("alpha war\tloud big", "beta peace\tsoft big") * 8]
        (folder / "train.tsv").write_text("\n".join(rows) + "\n")

    def run(self, module: str, *options: str) -> str:
        """Runs a command of ours there; returns what it printed."""
        path = os.pathsep.join([str(ROOT), str(self.folder)])
        flags = os.environ["XLA_FLAGS"].replace("device_count=8", "device_count=1")
        environment = os.environ | {"PYTHONPATH": path, "XLA_FLAGS": flags}
        done = commands.run("-m", module, *options, environment=environment, folder=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def outside(tmp_path_factory) -> Outside:
    """A model pretrained with parts of our own."""
    outside = Outside(tmp_path_factory.mktemp("outside"))
    outside.run("pretrain.main", "--config=recipe.py", "--workdir=runs/own")
    return outside


def test_own_objective_backbone_and_batches_train(outside):
    lines = metrics_file.read_lines(outside.folder / "runs/own/metrics.jsonl")
    steps, losses = metrics_file.select_series(lines, "loss")
    assert steps[-1] == 30
    assert losses[-1] < losses[0] - 0.5


def test_own_hook_cuts_the_rate_and_finishes_the_run_for_good(outside):
    outside.run("pretrain.main", "--config=recipe.py", "--workdir=runs/own")
    lines = metrics_file.read_lines(outside.folder / "runs/own/metrics.jsonl")
    steps, rates = metrics_file.select_series(lines, "lr")
    assert steps == list(range(1, 31))  # evaluations at 10, 20 and 30: two are no better
    assert [rates[step - 1] for step in (10, 20, 21, 30)] == [1e-2, 1e-2, 5e-3, 5e-3]


def test_own_text_format_frames_what_is_embedded(outside):
    (outside.folder / "in.txt").write_text("the senate\nthe house\n")
    outside.run("pretrain.embed", "--workdir=runs/own", "--layers=top", "in.txt", "out.h5")
    import h5py

    with h5py.File(outside.folder / "out.h5") as file:
        assert file["0"].shape[-1] == 16
        assert not np.allclose(file["0"][..., -1, :], file["1"][..., -1, :])


def test_own_task_learns_on_an_own_backbone(outside):
    options = "--config=task.py", "--config.init=runs/own", "--workdir=runs/task"
    outside.run("finetune.main", *options)
    lines = metrics_file.read_lines(outside.folder / "runs/task/metrics.jsonl")
    assert metrics_file.select_series(lines, "dev/accuracy")[1][-1] == 1.0
    predictions = (outside.folder / "runs/task/predictions/dev.jsonl").read_text().splitlines()
    assert json.loads(predictions[0])["labels"] == ["big", "loud"]


def test_own_system_is_exported_and_imported_to_the_bit(outside):
    system = "--system=own_parts.shelf"
    outside.run("pretrain.convert", "--workdir=runs/own", "--out=release", system)
    outside.run("pretrain.convert", "--source=release", "--workdir=runs/back", system)
    outside.run("pretrain.convert", "--workdir=runs/back", "--out=again")
    first, second = (
        {name: arrays.read(name) for name in arrays.specs}
        for folder in ("release", "again")
        for arrays in [npz.open_arrays(next((outside.folder / folder).glob("*.npz")))]
    )
    assert first.keys() == {"embedding", "w0.kernel", "w1.kernel"} == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)
