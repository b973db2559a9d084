"""A mistake on a launcher's command line is a line."""

import subprocess
import sys

import pytest

from tests.support.fake_clouds import ROOT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["launch.sweep"], "the following arguments are required: --config"),
        (["launch.sweep", "--config=bert"], "name a program to run, after --"),
        (["launch.local", "-n", "two", "--", "x"], "argument -n: invalid int value: 'two'"),
        (["launch.local"], "name a command to run, after --"),
        (["launch.attempt", "--code=x"], "name a program to run, after --"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words, said):
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {said}")


@pytest.mark.parametrize("module", ["launch.sweep", "launch.local", "launch.attempt"])
def test_help_is_what_a_module_says_of_itself(module):
    command = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: python -m {module} ")
    assert f"python -m {module} -" in done.stdout.partition("\n\n")[2]
