"""An end that is not the end has an exit code of its own."""

import os
import signal
import subprocess
import sys

import pytest

from launch.attempt import AGAIN, attempt
from tests.support.fake_clouds import ROOT

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


def test_a_signal_while_the_program_starts_is_passed_on(monkeypatch):
    plain = subprocess.Popen

    def interrupted(*args, **options):
        process = plain(*args, **options)
        os.kill(os.getpid(), signal.SIGTERM)
        return process

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert attempt(["sleep", "5"], {}) == 128 + signal.SIGTERM
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)
