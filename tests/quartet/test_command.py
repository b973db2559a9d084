"""One word runs a command as `python -m` does."""

import runpy
import sys

import pytest

from quartet import command
from tests.pretrain.cli.test_arguments import MAINS


@pytest.fixture
def run(monkeypatch):
    """Returns what `main` runs for a command line, and the arguments that it leaves."""
    ran = []

    def record(module, **options):
        ran.append((module, options, list(sys.argv)))

    monkeypatch.setattr(runpy, "run_module", record)

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["quartet", *words])
        command.main()
        return ran

    return run


def test_every_command_has_a_name():
    assert set(command.list_commands().values()) == {
        name for name in MAINS if not name.startswith("benchmarks.")
    }


def test_a_command_runs_with_the_words_behind_it(run):
    ((module, options, argv),) = run("finetune", "--config=sst2", "--workdir=x")
    assert (module, options) == ("finetune.main", dict(run_name="__main__", alter_sys=True))
    assert argv[1:] == ["--config=sst2", "--workdir=x"]


def test_alone_it_lists_the_commands(run, capsys):
    assert not run()
    said = capsys.readouterr().out
    assert "quartet pretrain    Pretrain a model\n" in said
    assert said.count("\n  quartet ") == len(command.list_commands())


def test_an_unknown_command_is_refused_with_those_there_are(run, capsys):
    with pytest.raises(SystemExit) as ended:
        run("pretrian")
    assert ended.value.code == 2
    assert "'pretrian': there are compile, convert" in capsys.readouterr().err
