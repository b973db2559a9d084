"""Pretraining goes on from a run: it knows at first what that one knew, and resumes to the bit."""

import functools
import json
import shutil
from unittest import mock

import jax
import pytest
from absl import flags
from absl.testing import flagsaver

from pretrain import main
from pretrain.distributed import processes
from pretrain.distributed.sharding import make_mesh
from pretrain.inference import continuation
from pretrain.training import loop
from tests.support import corpora
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]


@pytest.fixture(scope="module")
def pretrain():
    """`pretrain.main` in this process and on one device: (recipe, workdir) -> its exit code."""
    one = functools.partial(make_mesh, devices=jax.devices()[:1])
    with (
        mock.patch.object(loop, "make_mesh", one),
        mock.patch.object(continuation, "make_mesh", one),
        mock.patch.object(processes, "join"),
        flagsaver.flagsaver(),
    ):
        flags.FLAGS(["main", "--config=tests/support/tiny_runs.py:clm"])
        yield main.main


@pytest.fixture(scope="module")
def first(toy, pretrain, tmp_path_factory):
    """The workdir of a finished run of each recipe; not to be changed."""

    @functools.cache
    def run(recipe):
        workdir = tmp_path_factory.mktemp("first") / recipe
        assert pretrain(toy.config(recipe), workdir) == 0
        return workdir

    return run


def held_out(workdir, step):
    """The held-out numbers at a step."""
    [line] = [x for x in toys.written(workdir) if x["step"] == step and "held_out/loss" in x]
    return {name: x for name, x in line.items() if name.startswith("held_out/")}


@pytest.mark.parametrize("recipe", toys.quickly("clm"))
def test_a_run_begins_with_what_another_knew(toy, first, pretrain, tmp_path, recipe):
    config = toy.config(recipe, {"seed": 0})
    config.init = str(first(recipe))
    pretrain(config, tmp_path / "run")
    assert held_out(tmp_path / "run", 0) == held_out(first(recipe), toys.STEPS)
    assert held_out(tmp_path / "run", toys.STEPS) != held_out(first(recipe), toys.STEPS)


@pytest.mark.parametrize("recipe", toys.quickly("clm"))
def test_another_text_is_read_in_the_runs_tokens_and_resumed_exactly(
    toy, first, pretrain, tmp_path, monkeypatch, recipe
):
    text = tmp_path / "b.txt"
    text.write_text(corpora.prose(7, sentences=96, per_paragraph=12) + "Zyx qwj.\n")
    config = toy.config(recipe, {"corpus.source": f"text:{text}"})
    start = shutil.copytree(first(recipe), tmp_path / "start")
    config.init = str(start)
    assert pretrain(config, tmp_path / "straight") == 0

    class StopSoon:
        calls = 0

        def __call__(self) -> bool:
            self.calls += 1
            return self.calls > 5

    monkeypatch.setattr(processes, "Stop", StopSoon)
    assert pretrain(config, tmp_path / "run") == 75
    assert 0 < toys.checkpoints(tmp_path / "run")[-1] < toys.STEPS
    monkeypatch.undo()
    shutil.rmtree(start)  # what a run began with is not asked for again
    assert pretrain(config, tmp_path / "run") == 0
    one, other = (tmp_path / name for name in ("straight", "run"))
    assert toys.sums(one, toys.STEPS) == toys.sums(other, toys.STEPS)
    assert toys.written(one) == toys.written(other)
    pieces = [json.loads((x / "config.json").read_text())["corpus"]["tokens"] for x in (one, other)]
    assert pieces[0] == pieces[1] == {"name": "saved", "folder": f"{start}/tokenizer", "extend": 0}


def test_another_objective_takes_the_backbone_and_begins_its_head(
    toy, first, pretrain, tmp_path, capsys
):
    config = toy.config("clm", {"corpus.sentences": "line"})
    config.init = str(first("mlm"))
    pretrain(config, tmp_path / "run")
    said = capsys.readouterr().err
    assert "backbone/token_VD [120, 16]: restored" in said
    assert "head/transform_DD: ignored, is of another objective" in said
    assert "attention='causal'" in said
    restored = {line.split("/")[0].strip() for line in said.splitlines() if "restored" in line}
    assert restored == {"backbone"}
    recipe = json.loads((tmp_path / "run" / "config.json").read_text())
    assert recipe["model"]["attention"] == "causal"
    assert held_out(tmp_path / "run", toys.STEPS)["held_out/loss"] > 0
