"""launch/local.py: real processes that know who they are, and end together."""

import subprocess
import sys

from tests.toy import ROOT

WHO = "import os; print(os.environ['JAX_PROCESS_ID'], 'of', os.environ['JAX_NUM_PROCESSES'])"


def launch(code: str, n: int = 2) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "launch.local", "-n", str(n), "--", sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_every_process_is_told_who_it_is_and_its_lines_are_marked():
    done = launch(WHO, n=3)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["[0] 0 of 3", "[1] 1 of 3", "[2] 2 of 3"]


def test_the_first_failure_ends_all_and_its_code_is_passed_on():
    code = "import os, sys, time; time.sleep(0 if os.environ['JAX_PROCESS_ID'] == '1' else 600)"
    done = launch(f"{code}; sys.exit(7)")
    assert done.returncode == 7
    assert "process 1 with 7 failed" in done.stdout


def test_a_missing_command_is_refused():
    command = [sys.executable, "-m", "launch.local", "-n", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert "name a command" in done.stderr
