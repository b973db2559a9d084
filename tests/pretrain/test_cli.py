"""Where a run lives when nobody says so, and where it cannot."""

import re

import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from pretrain import cli, main
from pretrain.checkpoint import streaming_writer
from pretrain.distributed import processes
from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from tests.support.tiny_runs import ROOT

pytest_plugins = ["tests.support.tiny_runs"]


@pytest.fixture
def given(monkeypatch):
    """Takes a command line, as a main does."""
    monkeypatch.chdir(ROOT)

    def given(*words: str) -> None:
        flags.FLAGS(["main", *words])

    with flagsaver.flagsaver():
        yield given


@pytest.mark.parametrize(
    ("named", "folder"),
    [
        ("configs/xlnet.py", "xlnet-mini"),
        ("configs/bert.py:large", "bert-large"),
        ("configs/finetune/glue.py", "glue-mrpc"),
        ("configs/finetune/glue.py:rte", "glue-rte"),
        ("configs/finetune/stsb.py", "stsb"),
    ],
)
def test_a_workdir_is_named_after_the_recipe_and_the_preset_it_takes(given, named, folder):
    given(f"--config={named}")
    assert cli.workdir() == ROOT / "runs" / folder


def test_a_workdir_that_is_an_address_is_refused_before_a_folder_of_that_name_is_made(given):
    given("--config=configs/xlnet.py", "--workdir=gs://bucket/runs/xlnet")
    with pytest.raises(UserError, match="mount the bucket"):
        cli.workdir()


def test_a_recipe_without_a_section_is_refused_by_what_it_lacks(given):
    given("--config=configs/finetune/stsb.py")
    with pytest.raises(UserError, match=r"configs/finetune/stsb\.py has no corpus, optim\.b3:"):
        cli.check(cli.CONFIG.value, ["corpus", "optim", "optim.b2", "optim.b3", "model"])


def test_a_recipe_is_looked_at_number_by_number(given):
    given("--config=configs/gpt.py")
    cli.CONFIG.value.optim.clip = float("nan")
    with pytest.raises(UserError, match=r"optim\.clip=nan"):
        cli.check(cli.CONFIG.value, ["optim"])


@pytest.mark.parametrize("name", ["../../x", "", "__init__", "a."])
@pytest.mark.parametrize("key", ["corpus.tokens.name", "model.name"])
def test_the_name_of_a_part_is_no_path(given, key, name):
    given("--config=configs/gpt.py")
    cli.CONFIG.value.update_from_flattened_dict({key: name})
    with pytest.raises(UserError, match=re.escape(f"{key}={name!r}")):
        cli.check(cli.CONFIG.value, [])


def test_a_refused_start_changes_nothing_in_the_workdir(given, toy, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "join", lambda *_: None)
    workdir = tmp_path / "run"
    streaming_writer.write(workdir, 0, [("params/x", np.ones(3, np.float32))])
    run_config.write_config(workdir, {"model": {"D": 3}})
    (workdir / "lock").touch()
    given("--config=tests/support/tiny_runs.py:bilm", "--accept_changes")
    before = content(workdir)
    with pytest.raises(UserError, match="does not fit this recipe"):
        main.main(toy.config("bilm"), workdir)
    assert content(workdir) == before


def content(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_workdir_that_checkpoints_cannot_be_written_in_is_refused_at_the_door(given, tmp_path):
    given("--config=configs/xlnet.py", f"--workdir={tmp_path}/a[b]")
    with pytest.raises(UserError, match="take another --workdir"):
        cli.workdir()
    assert not list(tmp_path.iterdir())


FREE = ("mesh.data: 1 -> 2", "execution.remat: 'none' -> 'full'", "evals.dev.B: 8 -> 4")
FREE += ("train.keep: 2 -> 3", "train.log_every: 1 -> 2", "profile: '' -> '1-2'")
BOUND = ("model.D: 8 -> 4", "train.parts: 1 -> 2", "train.keeps: 1 -> 2", "profiles: 1 -> 2")


def test_a_resumed_run_may_compute_otherwise_but_nothing_else():
    assert all(cli.is_free(line) for line in FREE)
    assert not any(cli.is_free(line) for line in BOUND)


def test_an_error_in_one_process_alone_is_the_line_and_the_exit_code(capsys):
    with pytest.raises(SystemExit) as ended, cli.speaking():
        raise UserError("no such thing")
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: no such thing\n"


def test_a_line_that_ends_a_process_tells_of_no_credentials(capsys):
    with pytest.raises(SystemExit), cli.speaking():
        raise UserError("text:s3://key:secret@bucket/a.txt: cannot be read")
    assert capsys.readouterr().err == "error: text:s3://bucket/a.txt: cannot be read\n"
