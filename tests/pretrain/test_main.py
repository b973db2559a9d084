"""`python -m pretrain.main` at the keyboard: what it leaves, what it refuses and how it says so."""

import contextlib
import functools
import json
import os
import shutil

import jax
import pytest
from absl import flags

from pretrain import main
from pretrain.distributed.sharding import make_mesh
from pretrain.runtime.errors import UserError
from pretrain.training import loop
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]

BAD_TEXT = b"A good line.\nA bad \xff line.\n"


def assert_refused(done, *named) -> None:
    """It failed with a line that names what is wrong, and no traceback."""
    assert done.returncode not in (0, None), done.stderr
    assert done.returncode > 0, "killed by a signal"
    assert "Traceback" not in done.stdout + done.stderr
    for name in named:
        assert name in done.stderr


@pytest.fixture(scope="module")
def finished(toy, tmp_path_factory):
    """The workdir of a finished run of each recipe; not to be changed."""
    made = {}

    def run(recipe):
        if recipe not in made:
            made[recipe] = tmp_path_factory.mktemp("finished") / "run"
            done = toy.run(recipe, made[recipe])
            assert done.returncode == 0, done.stderr
        return made[recipe]

    return run


@pytest.fixture
def copy(finished, tmp_path):
    """A finished run of one's own."""
    return lambda recipe: shutil.copytree(finished(recipe), tmp_path / "run")


# --- what is refused -------------------------------------------------------------------------

FLAGS = {  # a change that the command line refuses, and what the error must name
    "misspelt key": ({"optim.lrr": 1}, ["lrr", "did you mean optim.lr?"]),
    "misspelt section": ({"optimm.lr": 1}, ["optimm"]),
    "word for a number": ({"optim.lr": "abc"}, ["optim.lr", "abc"]),
    "half a row": ({"batches.B": 1.5}, ["batches.B", "1.5"]),
    "unknown optimiser": ({"optim.name": "adamx"}, ["adamx", "adamw"]),  # as all of MISTAKES
}


@pytest.mark.parametrize("mistake", FLAGS)
def test_a_mistake_on_the_command_line_is_a_line(toy, tmp_path, mistake):
    changes, named = FLAGS[mistake]
    assert_refused(toy.run("plm", tmp_path / "run", changes), *named)
    assert not (tmp_path / "run" / "checkpoints").exists() or not toys.checkpoints(tmp_path / "run")


MISTAKES = {  # recipe and what is wrong: a change, and what the error must name
    "plm, odd rows": ({"batches.B": 7}, ["B=7", "pairs"]),
    "plm, rows in parts": ({"train.parts": 3}, ["8 rows", "3 parts"]),
    "plm, missing text": ({"corpus.source": "text:no/such.txt"}, ["no/such.txt"]),
    "plm, unknown source": ({"corpus.source": "web:x"}, ["web:x"]),
    "plm, unknown schedule": ({"optim.decay": "sine"}, ["sine"]),
    "plm, unknown model": ({"model.name": "nope"}, ["model.name", "nope"]),
    "plm, unknown objective": ({"objective.name": "nope"}, ["objective.name", "nope"]),
    "plm, unknown layout": ({"batches.name": "nope"}, ["batches.name", "nope"]),
    "plm, unknown dtype": ({"model.dtype": "float33"}, ["dtype", "float33"]),
    "plm, unknown activation": ({"model.activation": "nope"}, ["activation", "nope"]),
    "plm, unknown remat": ({"execution.remat": "nope"}, ["remat", "nope"]),
    "plm, vocabulary": ({"corpus.tokens.V": 30_000}, ["30000"]),
    "plm, mesh": ({"mesh.fsdp": 3}, ["fsdp=3", "1 devices"]),
    "plm, absurd numbers": ({"optim.lr": -1.0, "train.keep": 0}, ["lr=-1.0", "train.keep=0"]),
    "mlm, rows longer than the model": ({"batches.L": 40}, ["L=40", "at most 32 tokens"]),
    "mlm, short rows longer than it": ({"first_phase.L": 40}, ["L=40", "at most 32 tokens"]),
    "mlm, no steps of the first kind": ({"first_phase.share": 0.0}, ["first_phase.share=0.0"]),
    "mlm, nothing to tell from": ({"model.pooler": False}, ["nsp=True", "model.pooler=True"]),
    "clm, a band for both sides": ({"model.attention": "bi"}, ["model.window=8", "causal"]),
}


@pytest.fixture
def in_process(monkeypatch):
    """Lets `main.main` run here, on one device and without the lock of a workdir."""
    one = functools.partial(make_mesh, devices=jax.devices()[:1])
    monkeypatch.setattr(loop, "make_mesh", one)
    monkeypatch.setattr(main.cli, "open_workdir", lambda *_: contextlib.nullcontext(lambda: None))
    flags.FLAGS.mark_as_parsed()
    yield
    flags.FLAGS.unparse_flags()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_recipe_is_named_before_training(toy, tmp_path, in_process, mistake):
    changes, named = MISTAKES[mistake]
    config = toy.config(mistake[:3], changes)

    def start():
        main.cli.check(config, ())
        main.main(config, tmp_path / "run")

    with pytest.raises(UserError) as error:
        start()
    assert all(words in str(error.value) for words in named)
    assert not (tmp_path / "run" / "checkpoints").exists() or not toys.checkpoints(tmp_path / "run")


@pytest.mark.parametrize(
    ("recipe", "named"),
    [
        ("tests/support/tiny_runs.py:nope", ["nope", "plm"]),
        ("configs/nope.py", ["configs/nope.py"]),
    ],
)
def test_a_recipe_that_is_not_there_is_named(toy, tmp_path, recipe, named):
    assert_refused(toy.run(recipe, tmp_path / "run"), *named)


def test_text_that_is_not_utf8_is_named_by_file_line_and_byte(toy, tmp_path):
    (tmp_path / "bad.txt").write_bytes(BAD_TEXT)
    source = {"corpus.source": f"text:{tmp_path}/bad.txt", "corpus.cache": f"{tmp_path}/data"}
    done = toy.run("plm", tmp_path / "run", source)
    assert_refused(done, "bad.txt, line 2", f"offset {BAD_TEXT.index(0xFF)}", "UTF-8")


def test_rows_that_do_not_divide_over_the_devices_are_refused(toy, tmp_path):
    done = toy.run("plm", tmp_path / "run", {"batches.B": 6}, devices=4)
    assert_refused(done, "batch of 6 rows", "4 devices")


def test_held_out_rows_that_do_not_divide_are_refused_before_the_first_step(toy, tmp_path):
    done = toy.run("plm", tmp_path / "run", {"evals.held_out.B": 2}, devices=4)
    assert_refused(done, "2 rows", "4 devices")
    assert toys.written(tmp_path / "run") == []


def test_a_workdir_that_cannot_be_written_is_refused(toy):
    assert_refused(toy.run("plm", "/dev/null/run"), "/dev/null/run")


# --- what a run leaves -----------------------------------------------------------------------


@pytest.mark.parametrize("recipe", toys.quickly("bilm"))
def test_a_run_leaves_everything_in_its_workdir(finished, recipe):
    workdir = finished(recipe)
    assert {path.name for path in workdir.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "tensorboard",
        "curves.png",
        "checkpoints",
        "tokenizer",
        "heartbeats",
        "lock",
    }
    assert json.loads((workdir / "config.json").read_text())["optim"]["steps"] == toys.STEPS
    assert (workdir / "curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert toys.checkpoints(workdir) == [4, 6]  # save_every=2, keep=2
    assert any(path.stat().st_size for path in (workdir / "tensorboard").glob("*tfevents*"))
    assert list((workdir / "tokenizer").iterdir())


@pytest.mark.parametrize("recipe", toys.quickly("bilm"))
def test_a_run_writes_every_step_and_every_evaluation_once(finished, recipe):
    lines = toys.written(finished(recipe))
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if "held_out/loss" in line] == [3, 6]
    assert all(line["held_out/unigram"] > 0 for line in lines if "held_out/loss" in line)


@pytest.mark.parametrize("recipe", toys.ONE)
def test_a_finished_run_says_so_and_changes_nothing(toy, copy, recipe):
    workdir = copy(recipe)
    before = toys.written(workdir), toys.sums(workdir, toys.STEPS)
    done = toy.run(recipe, workdir)
    assert done.returncode == 0
    assert "Finished at step 6 of 6" in done.stdout
    assert (toys.written(workdir), toys.sums(workdir, toys.STEPS)) == before


# --- coming back to a workdir ----------------------------------------------------------------


def test_a_second_job_in_the_same_workdir_is_refused(toy, tmp_path):
    first = toy.start("bilm", tmp_path, {"optim.steps": 100_000, "train.save_every": 100_000})
    try:
        toys.wait_for(lambda: toys.written(tmp_path), first)
        assert_refused(toy.run("bilm", tmp_path), str(tmp_path), f"pid {first.pid}")
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()


def test_another_recipe_is_refused_with_what_differs_unless_accepted(toy, copy):
    workdir, changes = copy("bilm"), {"optim.lr": 0.02, "optim.steps": 8}
    before = (workdir / "config.json").read_text()
    refusal = toy.run("bilm", workdir, changes)
    assert_refused(refusal, "optim.lr: 0.01 -> 0.02", "optim.steps: 6 -> 8", "--accept_changes")
    assert (workdir / "config.json").read_text() == before
    accepted = toy.run("bilm", workdir, changes, "--accept_changes")
    assert accepted.returncode == 0, accepted.stderr
    assert toys.checkpoints(workdir)[-1] == 8
    assert (workdir / "config-before.json").read_text() == before


def test_how_often_a_run_reports_may_change_freely(toy, copy):
    done = toy.run("bilm", copy("bilm"), {"train.log_every": 2, "train.eval_every": 4})
    assert done.returncode == 0, done.stderr


def test_another_corpus_is_refused_unless_accepted(toy, copy, tmp_path):
    workdir, text = copy("bilm"), toy.text.read_text()
    (tmp_path / "a.txt").write_text(text + "\n" + text[:500].replace("a", "e"))
    changes = {"corpus.source": f"text:{tmp_path}/a.txt"}
    assert_refused(toy.run("bilm", workdir, changes), "corpus.source")


def test_a_corpus_changed_in_place_is_refused_unless_accepted(toy, copy, tmp_path):
    workdir, original = copy("bilm"), toy.text.read_text()
    try:
        toy.text.write_text(original + "\n" + original[:500].replace("a", "e"))
        assert_refused(toy.run("bilm", workdir), "corpus:", "--accept_changes")
        accepted = toy.run("bilm", workdir, {}, "--accept_changes")
    finally:
        toy.text.write_text(original)
    assert accepted.returncode == 0, accepted.stderr


def damage(workdir, step) -> None:
    """Cuts the largest file of a checkpoint in half."""
    files = [p for p in (workdir / "checkpoints" / str(step)).rglob("*") if p.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


@pytest.mark.parametrize("recipe", toys.ONE)
def test_from_a_damaged_checkpoint_a_run_falls_back_aloud_and_arrives_the_same(toy, copy, recipe):
    workdir = copy(recipe)
    before = toys.written(workdir), toys.sums(workdir, 6)
    damage(workdir, 6)
    done = toy.run(recipe, workdir)
    assert done.returncode == 0, done.stderr
    assert "checkpoints/6 is refused" in done.stderr
    assert (toys.written(workdir), toys.sums(workdir, 6)) == before


def test_if_every_checkpoint_is_damaged_the_run_refuses_to_start_over(toy, copy):
    workdir = copy("bilm")
    damage(workdir, 6)
    damage(workdir, 4)
    assert_refused(toy.run("bilm", workdir), "no checkpoint", "step 6", "step 4")
    assert toys.checkpoints(workdir) == [4, 6]
