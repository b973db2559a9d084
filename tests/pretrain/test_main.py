"""`python -m pretrain.main` at the keyboard: what it leaves, what it refuses and how it says so."""

import functools
import json
import os
import pathlib
import shutil

import pytest

from pretrain import main
from pretrain.runtime.errors import UserError
from pretrain.runtime.job_options import JobOptions
from pretrain.runtime.locks import lock_workdir
from pretrain.runtime.recipe_check import check_recipe
from tests.support import shared_steps
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]

BAD_TEXT = b"A good line.\nA bad \xff line.\n"


@pytest.fixture(scope="module")
def finished(toy, tmp_path_factory):
    """The workdir of a finished run of each recipe; not to be changed."""

    @functools.cache
    def run(recipe):
        workdir = tmp_path_factory.mktemp("finished") / "run"
        done = toy.run(recipe, workdir)
        assert done.returncode == 0, done.stderr
        return workdir

    return run


@pytest.fixture
def copy(finished, tmp_path):
    """A finished run of one's own."""
    return lambda recipe: shutil.copytree(finished(recipe), tmp_path / "run")


@pytest.fixture
def run(toy):
    """Runs the command in this process; the options are those of `JobOptions`."""

    def run(recipe, workdir, changes=None, devices=1, **options) -> int:
        config = toy.config(recipe, changes)
        check_recipe(config, (), "")
        with shared_steps.train_on(devices):
            return main.main(config, workdir, JobOptions(joins=False, **options))

    return run


@pytest.fixture
def refused(run, tmp_path):
    """Runs the command and returns its error; before a step is taken."""

    def refused(recipe, workdir=tmp_path / "run", *arguments, **options) -> str:
        lines = toys.written(workdir)
        with pytest.raises(UserError) as error:
            run(recipe, workdir, *arguments, **options)
        assert toys.written(workdir) == lines
        return str(error.value)

    return refused


# --- what is refused -------------------------------------------------------------------------

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
    "plm, unknown optimiser": ({"optim.name": "adamx"}, ["adamx", "adamw"]),
    "plm, absurd numbers": ({"optim.lr": -1.0, "train.keep": 0}, ["lr=-1.0", "train.keep=0"]),
    "mlm, rows longer than the model": ({"batches.L": 40}, ["L=40", "at most 32 tokens"]),
    "mlm, short rows longer than it": ({"first_phase.L": 40}, ["L=40", "at most 32 tokens"]),
    "mlm, all steps of the first kind": ({"first_phase.share": 1.0}, ["first_phase.share=1.0"]),
    "mlm, nothing to tell from": ({"model.pooler": False}, ["nsp=True", "model.pooler=True"]),
    "clm, a band for both sides": ({"model.attention": "bi"}, ["model.window=8", "causal"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_recipe_is_named_before_training(refused, tmp_path, mistake):
    changes, named = MISTAKES[mistake]
    said = refused(mistake[:3], tmp_path / "run", changes)
    assert all(words in said for words in named)


def test_a_layout_without_its_fields_is_refused_before_a_corpus_is_prepared(refused, tmp_path):
    changes = {"batches.name": "bptt", "corpus.source": f"text:{tmp_path}/none.txt"}
    assert "of this recipe's 'pairs' do not fit 'bptt'" in refused("mlm", tmp_path / "run", changes)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mesh.fsdp": 3}, "fsdp=3"),
        ({"train.parts": 3}, "3 parts"),
        ({"optim.name": "x"}, "adamw"),
        ({"text_format": "nope"}, "text_format: name='nope'"),
    ],
)
def test_what_needs_no_text_is_refused_before_a_corpus_is_prepared(
    refused, tmp_path, changes, named
):
    source = {"corpus.source": f"text:{tmp_path}/none.txt"}
    assert named in refused("clm", tmp_path / "run", {**changes, **source})


def test_a_run_that_is_refused_leaves_nothing(refused, tmp_path):
    workdir = tmp_path / "runs" / "new"
    assert "fsdp=3" in refused("clm", workdir, {"mesh.fsdp": 3})  # once the workdir is locked
    assert not workdir.parent.exists()


def test_text_that_is_not_utf8_is_named_by_file_line_and_byte(refused, tmp_path):
    (tmp_path / "bad.txt").write_bytes(BAD_TEXT)
    source = {"corpus.source": f"text:{tmp_path}/bad.txt", "corpus.cache": f"{tmp_path}/data"}
    said = refused("plm", tmp_path / "run", source)
    for named in ("bad.txt, line 2", f"offset {BAD_TEXT.index(0xFF)}", "UTF-8"):
        assert named in said


@pytest.mark.parametrize(("key", "rows"), [("batches.B", 6), ("evals.held_out.B", 2)])
def test_rows_that_do_not_divide_over_the_devices_are_refused(refused, tmp_path, key, rows):
    said = refused("plm", tmp_path / "run", {key: rows}, devices=4)
    assert f"{rows} rows" in said
    assert "4 devices" in said


def test_a_workdir_that_cannot_be_written_is_refused(run):
    with pytest.raises(UserError, match="cannot write in /dev/null/run"):
        run("plm", pathlib.Path("/dev/null/run"))


# --- what a run leaves -----------------------------------------------------------------------


@pytest.mark.parametrize("recipe", toys.quickly("clm"))
def test_a_run_leaves_everything_in_its_workdir(finished, recipe):
    workdir = finished(recipe)
    there = "checkpoints command.txt config.json curves.png data.json heartbeats lock metrics.jsonl"
    there += " tensorboard tokenizer"
    assert sorted(path.name for path in workdir.iterdir()) == there.split()
    counts = json.loads((workdir / "data.json").read_text())
    assert 0 < counts["held_out"] < counts["documents"] < counts["words"] <= counts["tokens"]
    assert " -m pretrain.main --config=" in (workdir / "command.txt").read_text()
    assert json.loads((workdir / "config.json").read_text())["optim"]["steps"] == toys.STEPS
    assert (workdir / "curves.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert toys.checkpoints(workdir) == [4, 6]  # save_every=2, keep=2
    assert any(path.stat().st_size for path in (workdir / "tensorboard").glob("*tfevents*"))
    assert list((workdir / "tokenizer").iterdir())


@pytest.mark.parametrize("recipe", toys.quickly("clm"))
def test_a_run_writes_every_step_and_every_evaluation_once(finished, recipe):
    lines = toys.written(finished(recipe))
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if "held_out/loss" in line] == [3, 6]
    assert all(line["held_out/unigram"] > 0 for line in lines if "held_out/loss" in line)


def test_a_finished_run_says_so_and_changes_nothing(run, copy, capsys):
    workdir = copy("clm")
    before = toys.written(workdir), toys.sums(workdir, toys.STEPS)
    assert run("clm", workdir) == 0
    assert "Finished at step 6 of 6" in capsys.readouterr().out
    assert (toys.written(workdir), toys.sums(workdir, toys.STEPS)) == before


# --- coming back to a workdir ----------------------------------------------------------------


def test_a_second_job_in_the_same_workdir_is_refused(refused, tmp_path):
    with lock_workdir(tmp_path / "run"):
        assert f"{tmp_path}/run is in use by pid {os.getpid()}" in refused("clm", tmp_path / "run")


def test_another_recipe_is_refused_with_what_differs_unless_accepted(run, refused, copy):
    workdir, changes = copy("clm"), {"optim.lr": 0.02, "optim.steps": 8}
    before = (workdir / "config.json").read_text()
    said = refused("clm", workdir, changes)
    for named in ("optim.lr: 0.01 -> 0.02", "optim.steps: 6 -> 8", "--accept_changes"):
        assert named in said
    assert (workdir / "config.json").read_text() == before
    assert run("clm", workdir, changes, accept_changes=True) == 0
    assert toys.checkpoints(workdir)[-1] == 8
    assert (workdir / "config-before.json").read_text() == before


def test_how_often_a_run_reports_may_change_freely(run, copy):
    assert run("clm", copy("clm"), {"train.log_every": 2, "train.eval_every": 4}) == 0


def test_another_corpus_is_refused_unless_accepted(refused, toy, copy, tmp_path):
    (tmp_path / "a.txt").write_text(change_text(toy.text.read_text()))
    changes = {"corpus.source": f"text:{tmp_path}/a.txt"}
    assert "corpus.source" in refused("clm", copy("clm"), changes)


def change_text(text: str) -> str:
    return text + "\n" + text[:500].replace("a", "e")


def test_a_corpus_changed_in_place_is_refused_unless_accepted(run, refused, toy, copy):
    workdir, original = copy("clm"), toy.text.read_text()
    try:
        toy.text.write_text(change_text(original))
        said = refused("clm", workdir)
        accepted = run("clm", workdir, {}, accept_changes=True)
    finally:
        toy.text.write_text(original)
    assert "corpus:" in said
    assert "--accept_changes" in said
    assert accepted == 0


def damage(workdir, step) -> None:
    """Cuts the largest file of a checkpoint in half."""
    files = [p for p in (workdir / "checkpoints" / str(step)).rglob("*") if p.is_file()]
    largest = max(files, key=lambda path: path.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


def test_from_a_damaged_checkpoint_a_run_falls_back_aloud_and_arrives_the_same(run, copy, caplog):
    workdir = copy("clm")
    before = toys.written(workdir), toys.sums(workdir, 6)
    damage(workdir, 6)
    assert run("clm", workdir) == 0
    assert "checkpoints/6 is refused" in caplog.text
    assert (toys.written(workdir), toys.sums(workdir, 6)) == before


def test_if_every_checkpoint_is_damaged_the_run_refuses_to_start_over(refused, copy):
    workdir = copy("clm")
    damage(workdir, 6)
    damage(workdir, 4)
    said = refused("clm", workdir)
    assert all(named in said for named in ("no checkpoint", "step 6", "step 4"))
    assert toys.checkpoints(workdir) == [4, 6]
