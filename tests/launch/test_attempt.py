"""An end that is not the end has an exit code of its own."""

import os
import signal
import subprocess
import sys

import pytest

from launch.attempt import AGAIN
from tests.support import tiny_runs as toys
from tests.support.fake_clouds import ROOT, find_child, wait_for

pytest_plugins = ["tests.support.tiny_runs"]

ABORT = "import os; os.abort()"
JOINED = "import os; open(os.environ['QUARTET_JOINED'], 'w').write('process 1 of 2'); os.abort()"


def begin(program: list[str], *options: str, **more) -> subprocess.Popen:
    command = [sys.executable, "-m", "launch.attempt", *options, "--", *program]
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
    )


@pytest.mark.parametrize(
    ("code", "end", "said"),
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL, ""),
        ("import os; os.kill(os.getpid(), 15)", 128 + signal.SIGTERM, ""),
        (ABORT, 128 + signal.SIGABRT, ""),
        (JOINED, AGAIN, "[launch] process 1 of 2 was ended by JAX, as another one was lost; "),
    ],
)
def test_the_exit_code_is_passed_on_and_a_lost_peer_means_again(code, end, said, tmp_path):
    process = begin([sys.executable, "-c", code], f"--code={tmp_path / 'code'}")
    _, err = process.communicate()
    assert process.returncode == end
    assert err.startswith(said)
    assert bool(err) == bool(said)
    assert (tmp_path / "code").read_text() == f"{end}\n"


def test_a_program_that_there_is_not_is_named():
    process = begin(["no-such-program"])
    assert "no-such-program: No such file or directory" in process.communicate()[1]
    assert process.returncode == 127


@pytest.mark.slow
def test_a_real_run_that_was_stopped_is_told_from_one_that_has_finished(toy, tmp_path):
    def train(steps: int) -> subprocess.Popen:
        changes = {"optim.steps": steps, "train.save_every": 0, "train.eval_every": 0}
        words = toy.command("bilm", tmp_path, changes, "--accept_changes")
        return begin(words, env=toy.environment())

    step = 0
    for find_receiver in (lambda process: process.pid, find_child):
        process = train(100_000)
        wait_for(lambda: (toys.written(tmp_path) or [{"step": 0}])[-1]["step"] > step, process)  # noqa: B023
        os.kill(find_receiver(process), signal.SIGTERM)
        out, _ = process.communicate()
        assert process.returncode == AGAIN, out
        step = toys.checkpoints(tmp_path)[-1]
    process = train(step + 2)
    out, _ = process.communicate()
    assert process.returncode == 0, out
    assert f"Finished at step {step + 2}" in out
