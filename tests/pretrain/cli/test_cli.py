"""Where a run lives when nobody says so, and where it cannot."""

import signal
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
from absl import app, flags
from absl.testing import flagsaver

from pretrain import cli, main
from pretrain.checkpoint import streaming_writer
from pretrain.cli import arguments
from pretrain.distributed import processes
from pretrain.runtime import malloc, run_config
from pretrain.runtime.errors import TerminatedError, UsageError, UserError
from pretrain.runtime.job_options import JobOptions
from tests.support.tiny_runs import ROOT

pytest_plugins = ["tests.support.tiny_runs"]


@pytest.fixture
def given(monkeypatch):
    """Takes a command line, as a main does."""
    monkeypatch.chdir(ROOT)
    app.define_help_flags()  # once in a process: else the flags go with this test

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
    assert cli.resolve_workdir() == ROOT / "runs" / folder


def test_a_workdir_that_is_an_address_is_refused_and_not_made(given):
    given("--config=configs/xlnet.py", "--workdir=gs://bucket/runs/xlnet")
    with pytest.raises(UserError, match="mount the bucket"):
        cli.resolve_workdir()


def test_a_refused_start_changes_nothing_in_the_workdir(toy, tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "join", lambda *_: None)
    workdir = tmp_path / "run"
    streaming_writer.write(workdir, 0, [("params/x", np.ones(3, np.float32))])
    run_config.write_config(workdir, {"model": {"D": 3}})
    (workdir / "lock").touch()
    before = content(workdir)
    with pytest.raises(UserError, match="does not fit this recipe"):
        main.main(toy.config("bilm"), workdir, JobOptions(accept_changes=True))
    assert content(workdir) == before


def content(folder):
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def test_a_workdir_that_checkpoints_cannot_be_written_in_is_refused_at_the_door(given, tmp_path):
    given("--config=configs/xlnet.py", f"--workdir={tmp_path}/a[b]")
    with pytest.raises(UserError, match="take another --workdir"):
        cli.resolve_workdir()
    assert not list(tmp_path.iterdir())


def test_the_flags_of_a_job_are_its_options(given):
    given("--config=configs/bert.py:large", "--accept_changes", "--heartbeat=5")
    options = cli.read_options()
    assert options.command.startswith("python ")
    options = options._replace(command="")
    assert options == JobOptions(name="bert-large", accept_changes=True, heartbeat=5)


@pytest.fixture
def ended(given, monkeypatch, capsys):
    """(what main returns or raises, words) -> the exit code, and what was said on stderr."""

    def ended(outcome, *words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["main", *words])
        monkeypatch.setattr(malloc, "keep_memory", lambda: None)
        with pytest.raises(SystemExit) as exit:
            cli.run(mock.Mock(side_effect=[outcome]), interrupted="nothing was made")
        return exit.value.code or 0, capsys.readouterr().err

    return ended


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        (None, 0, ""),
        (75, 75, ""),
        (UserError("no such thing"), 1, "error: no such thing\n"),
        (TerminatedError("told to terminate"), 75, "error: told to terminate\n"),
        (UsageError("name a file"), 2, "error: name a file\n"),
        (KeyboardInterrupt(), 130, "interrupted; nothing was made\n"),
    ],
)
def test_a_command_ends_with_the_code_of_its_outcome(ended, outcome, code, said):
    assert ended(outcome) == (code, said)


def test_a_recipe_is_explained_in_the_place_of_work(given, monkeypatch, capsys):
    words = ["main", "--config=configs/bert.py", "--explain=optim"]
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr(malloc, "keep_memory", lambda: None)
    monkeypatch.setattr(arguments, "end_with_reader", lambda: None)  # would end the tests, too
    with pytest.raises(SystemExit) as ended:
        cli.run(mock.Mock(side_effect=AssertionError), recipe=["model"])
    assert not ended.value.code
    said = capsys.readouterr().out
    assert "optim.lr=0.0007" in said
    assert "the learning rate at its peak." in said
    assert "model." not in said


def test_an_explanation_that_nobody_reads_to_its_end_ends_without_a_word():
    words = [sys.executable, "-m", "pretrain.main", "--config=bert", "--explain"]
    with subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == -signal.SIGPIPE


def test_a_word_that_a_command_does_not_take_is_a_usage_error(ended):
    assert ended(None, "stray")[0] == 2


@pytest.mark.parametrize("error", [ValueError("shapes differ"), KeyError("x")])
def test_an_error_of_the_program_keeps_its_traceback(ended, error):
    with pytest.raises(type(error)) as raised:
        ended(error)
    assert raised.value is error


def test_a_line_that_ends_a_process_tells_of_no_credentials(capsys):
    with pytest.raises(SystemExit), cli.end_on_error():
        raise UserError("text:s3://key:secret@bucket/a.txt: cannot be read")
    assert capsys.readouterr().err == "error: text:s3://bucket/a.txt: cannot be read\n"
