"""Pretraining goes on from a run: it knows at first what that one knew, and resumes to the bit."""

import functools
import json
import shutil
from unittest import mock

import jax
import optax
import pytest

from pretrain import evaluate, main
from pretrain.checkpoint import checksums
from pretrain.checkpoint.named_leaves import flatten
from pretrain.conversion import exporter, importer
from pretrain.distributed import processes
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference import continuation
from pretrain.inference.trained_run import load_run
from pretrain.runtime.errors import UserError
from pretrain.runtime.job_options import JobOptions
from pretrain.training import loop, optimizer
from pretrain.training.compiled_steps import Steps
from tests.support import corpora, shared_steps
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]


@pytest.fixture(scope="module")
def pretrain():
    """`pretrain.main` in this process and on one device: (recipe, workdir) -> its exit code."""
    one = functools.partial(make_mesh, devices=jax.devices()[:1])
    with (
        shared_steps.train_on(1),
        mock.patch.object(continuation, "make_mesh", one),
        mock.patch.object(evaluate, "make_mesh", one),
    ):
        yield functools.partial(main.main, options=JobOptions(joins=False))


@pytest.fixture(scope="module")
def first(toy, pretrain, tmp_path_factory):
    """The workdir of a finished run of each recipe; not to be changed."""

    @functools.cache
    def run(recipe):
        workdir = tmp_path_factory.mktemp("first") / recipe
        assert pretrain(toy.config(recipe), workdir) == 0
        return workdir

    return run


class StopSoon:
    """The request to terminate, heard after some steps."""

    calls = 0

    def __call__(self) -> bool:
        self.calls += 1
        return self.calls > 5


def held_out(workdir, step):
    """The held-out numbers at a step."""
    [line] = [x for x in toys.written(workdir) if x["step"] == step and "held_out/loss" in x]
    return {name: x for name, x in line.items() if name.startswith("held_out/")}


@pytest.mark.parametrize("recipe", toys.quickly("clm"))
def test_a_run_begins_with_what_another_knew(toy, first, pretrain, tmp_path, recipe):
    # With an average of the parameters, which is what is evaluated.
    config = toy.config(recipe, {"train.average": 0.9})
    config.init = str(first(recipe))
    pretrain(config, tmp_path / "run")
    assert held_out(tmp_path / "run", 0) == held_out(first(recipe), toys.STEPS)
    assert held_out(tmp_path / "run", toys.STEPS) != held_out(first(recipe), toys.STEPS)


def test_an_optimizer_is_carried_over_but_for_its_schedule(toy, first, pretrain, tmp_path):
    config = toy.config("clm")
    config.init, config.init_optimizer = str(first("clm")), True
    start = continuation.open_start(config, tmp_path)
    objective, train, _ = toys.build(start.config)
    layout = Layout(loop.make_mesh())
    steps = Steps(objective, optimizer.make(**config.optim)[0], layout, [train], seed=0)
    state = start.loop_options(start.run.tokenizer, lambda line: None)["prepare"](steps.init())
    carried, _ = checksums.describe(flatten({"params": state.params, "opt": state.opt}))
    saved = toys.sums(first("clm"), toys.STEPS)
    different = {name for name, x in carried.items() if x != saved[name]}
    [schedule] = different
    assert schedule.endswith("/count")
    assert [int(x.count) for x in state.opt if isinstance(x, optax.ScaleByScheduleState)] == [0]
    config.optim.name = "adagrad"
    steps = Steps(objective, optimizer.make(**config.optim)[0], layout, [train], seed=0)
    with pytest.raises(UserError, match="another optimiser"):
        start.loop_options(start.run.tokenizer, print)["prepare"](steps.init())


@pytest.mark.parametrize("recipe", toys.quickly("clm"))
def test_new_words_of_a_text_join_the_vocabulary_and_stay(
    toy, first, pretrain, tmp_path, monkeypatch, capsys, recipe
):
    changes = {
        "corpus.source": corpora.write_with_new_words(tmp_path / "b.txt"),
        "corpus.tokens.extend": 2,
    }
    if recipe == "mlm":  # the one with a table of segments
        changes["model.S"] = 3
    config = toy.config(recipe, changes)
    start = shutil.copytree(first(recipe), tmp_path / "start")
    config.init = str(start)
    assert pretrain(config, tmp_path / "straight") == 0
    said = capsys.readouterr().err
    tables = [line for line in said.splitlines() if "grown: 2 rows, the mean of the old" in line]
    names = {"plm": 2, "mlm": 2, "clm": 1, "bilm": 2}  # of tokens, and of their softmax or biases
    assert len(tables) == names[recipe]
    assert ("segment_SD [3, 16]: grown: 1 rows, the mean of the old" in said) == (recipe == "mlm")
    assert f"adding 2 words of the text to the vocabulary {start}" in said
    old, new = (load_run(x) for x in (start, tmp_path / "straight"))
    V = old.config.model.V
    assert new.config.model.V == V + 2
    assert new.tokenizer.pieces[:V] == old.tokenizer.pieces[:V]
    (ids,) = new.tokenizer.encode(["so Zyx vuv"])
    assert sorted(ids[-2:]) == [V, V + 1]
    monkeypatch.setattr(processes, "Stop", StopSoon)
    assert pretrain(config, tmp_path / "run") == 75
    monkeypatch.undo()
    shutil.rmtree(start)
    capsys.readouterr()
    assert pretrain(config, tmp_path / "run") == 0
    assert "adding 2 words" not in capsys.readouterr().err  # the corpus is there
    one, other = (tmp_path / name for name in ("straight", "run"))
    assert toys.sums(one, toys.STEPS) == toys.sums(other, toys.STEPS)
    # Whoever goes on from there has these words, and the same text anew.
    config.corpus.tokens.extend, config.init = 0, str(other)
    assert pretrain(config, tmp_path / "again") == 0
    assert held_out(tmp_path / "again", 0) == held_out(other, toys.STEPS)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("recipe", toys.RECIPES)
def test_a_run_goes_on_from_an_import(toy, pretrain, tmp_path, recipe):
    changes = {"model.window": 0} if recipe == "clm" else {}  # GPT-2's code has no banded layers
    if recipe == "plm":
        changes = {"model.M": 16, "head.bias": True}
    config = toy.config(recipe, changes)
    assert pretrain(config, tmp_path / "first") == 0
    exporter.export_weights(tmp_path / "first", tmp_path / "release", print)
    importer.import_weights(tmp_path / "release", tmp_path / "import", print)
    config.init = str(tmp_path / "import")
    assert pretrain(config, tmp_path / "run") == 0
    now, then = held_out(tmp_path / "run", 0), held_out(tmp_path / "first", toys.STEPS)
    if recipe == "bilm":  # a release has no softmax, which begins anew
        assert now.keys() == then.keys()
    else:
        assert now == pytest.approx(then, rel=1e-5)
