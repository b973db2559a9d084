"""An end that is not the end has an exit code of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from launch.attempt import AGAIN
from tests.support import tiny_runs as toys
from tests.support.fake_clouds import ROOT, TALKER, has_ended, wait_for

CAREFUL = """\
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
print("ready")
signal.pause()
"""


def attempt(code: str, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "launch.attempt", *options, "--", sys.executable, "-c", code]
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("import os; os.kill(os.getpid(), 9)", 128 + 9),
        ("import sys; sys.exit(75)", AGAIN),
        ("print('Stopped at step 3 of 6.')", 0),
    ],
)
def test_the_exit_code_of_the_program_is_passed_on(code, end, tmp_path):
    process = attempt(code, f"--code={tmp_path / 'code'}")
    process.communicate()
    assert process.returncode == end
    assert (tmp_path / "code").read_text() == f"{end}\n"


def test_what_the_program_says_is_passed_on_line_by_line():
    process = attempt("print('one'); import signal; signal.pause()")
    assert process.stdout.readline() == "one\n"
    process.terminate()
    process.communicate()


@pytest.mark.parametrize(("careful", "end"), [(True, AGAIN), (False, 128 + signal.SIGTERM)])
def test_sigterm_reaches_the_program_and_only_one_that_saves_is_to_be_tried_again(careful, end):
    process = attempt(CAREFUL if careful else CAREFUL.replace("signal.signal", "print"))
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    process.terminate()
    process.communicate()
    assert process.returncode == end


def test_a_program_whose_output_nobody_reads_saves_and_ends(tmp_path):
    process = attempt(TALKER.format(folder=str(tmp_path)))
    wait_for(lambda: list(tmp_path.glob("ready-*")), process)
    process.stdout.close()
    assert process.wait() == 1
    assert process.stderr.read() == (
        "[launch] nobody reads the output any more: ending the program\n"
    )
    assert len(list(tmp_path.glob("saved-*"))) == 1


@pytest.mark.parametrize("end", [0, AGAIN])
def test_a_full_disk_under_the_output_changes_no_exit_code(end):
    talk = f"import sys; print(('x' * 999 + '\\n') * 1000 + 'end'); sys.exit({end})"
    command = [sys.executable, "-m", "launch.attempt", "--", sys.executable, "-c", talk]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == end
    assert done.stderr.splitlines() == [
        "[launch] the output cannot be written, the program goes on: No space left on device",
        "[launch] 1001 lines of output could not be written",
    ]


def test_a_program_does_not_outlive_an_attempt_that_is_killed():
    process = attempt("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    pid = int(process.stdout.readline())
    process.kill()
    process.communicate()
    while not has_ended(pid):
        time.sleep(0.01)


def test_a_program_that_there_is_not_is_named():
    command = [sys.executable, "-m", "launch.attempt", "--", "no-such-program"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 127
    assert "no-such-program: No such file or directory" in done.stderr


@pytest.mark.slow
def test_a_real_run_that_was_stopped_is_told_from_one_that_has_finished(toy, tmp_path):
    def begin(steps: int) -> subprocess.Popen:
        changes = {"optim.steps": steps, "train.save_every": 0, "train.eval_every": 0}
        program = toy.command("bilm", tmp_path, changes, "--accept_changes")
        return subprocess.Popen(
            [sys.executable, "-m", "launch.attempt", "--", *program],
            cwd=ROOT,
            text=True,
            env=toy.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    process = begin(100_000)
    wait_for(lambda: toys.written(tmp_path), process)
    process.terminate()
    out, _ = process.communicate()
    (step,) = toys.checkpoints(tmp_path)
    assert process.returncode == AGAIN, out
    process = begin(step + 2)
    out, _ = process.communicate()
    assert process.returncode == 0, out
    assert f"Finished at step {step + 2}" in out


@pytest.mark.slow
def test_a_signal_to_the_run_itself_counts_as_well(toy, tmp_path):
    program = toy.command("bilm", tmp_path, {"optim.steps": 100_000})
    process = subprocess.Popen(
        [sys.executable, "-m", "launch.attempt", "--", *program],
        cwd=ROOT,
        text=True,
        env=toy.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for(lambda: toys.written(tmp_path), process)
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    os.kill(int(children.split()[0]), signal.SIGTERM)
    out, _ = process.communicate()
    assert process.returncode == AGAIN, out
