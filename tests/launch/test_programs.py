"""Both launchers outlast a full disk, end with their reader, and take their programs with them."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from launch import programs
from launch.attempt import AGAIN
from tests.support.fake_clouds import ROOT, TALKER, has_ended, wait_for

LAUNCHERS = {"attempt": [], "local": ["-n", "2"]}


@pytest.fixture(params=LAUNCHERS)
def begin(request):
    """(Python code, stdout) -> one of the launchers, running it on the CPU."""

    def begin(code: str, stdout=subprocess.PIPE) -> subprocess.Popen:
        words = ["-m", f"launch.{request.param}", *LAUNCHERS[request.param], "--"]
        return subprocess.Popen(
            [sys.executable, *words, *([sys.executable, "-c", code] if code else [])],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            text=True,
            stdout=stdout,
            stderr=subprocess.PIPE,
        )

    begin.count = 1 + (request.param == "local")
    return begin


def read(process: subprocess.Popen) -> str:
    """The next line of a program, without the number of its process."""
    return process.stdout.readline().rstrip("\n").rpartition("] ")[2]


@pytest.mark.parametrize(
    ("begin", "signum", "end"),
    [
        ("attempt", signal.SIGTERM, 0),
        ("attempt", signal.SIGTERM, AGAIN),
        ("local", signal.SIGTERM, AGAIN),
        ("local", signal.SIGINT, 0),  # to an attempt's program a terminal sends it by itself
    ],
    indirect=["begin"],
)
def test_a_signal_reaches_every_program_and_its_code_is_the_launchers(begin, signum, end):
    process = begin(f"""
import signal, sys
signal.signal({int(signum)}, lambda *_: (print("saved"), sys.exit({end})))
print("ready")
signal.pause()
""")
    assert [read(process) for _ in range(begin.count)] == ["ready"] * begin.count
    process.send_signal(signum)
    out, _ = process.communicate(timeout=60)
    assert out.count("saved") == begin.count
    assert process.returncode == end


def test_programs_whose_output_nobody_reads_save_and_end(begin, tmp_path):
    process = begin(TALKER.format(folder=str(tmp_path)))
    wait_for(lambda: len(list(tmp_path.glob("ready-*"))) == begin.count, process)
    process.stdout.close()
    assert process.wait() == 1
    said = "[launch] nobody reads the output any more: ending the program\n"
    assert process.stderr.read() == said
    assert len(list(tmp_path.glob("saved-*"))) == begin.count


@pytest.mark.parametrize("end", [0, AGAIN])
def test_a_full_disk_under_the_output_changes_no_exit_code(begin, end):
    talk = f"import sys; print(('x' * 999 + '\\n') * 1000, end=''); sys.exit({end})"
    with open("/dev/full", "w") as full:
        process = begin(talk, full)
        _, said = process.communicate()
    assert process.returncode == end
    first, last = said.splitlines()
    assert first.endswith(
        "the output cannot be written, the program goes on: No space left on device"
    )
    assert last.endswith(" lines of output could not be written")


def test_programs_do_not_outlive_a_launcher_that_is_killed(begin):
    process = begin("import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    pids = [int(read(process)) for _ in range(begin.count)]
    process.kill()
    process.communicate()
    while not all(map(has_ended, pids)):
        time.sleep(0.01)


def test_a_missing_program_is_refused(begin):
    process = begin("")
    assert "to run, after --" in process.communicate()[1]
    assert process.returncode == 2


@pytest.fixture
def written(monkeypatch):
    """Replaces the streams: writes to stdout raise the error set, those to stderr are listed."""
    state = {"error": None, 1: b"", 2: b""}

    def write(stream: int, data: bytes) -> int:
        if stream == 1 and state["error"]:
            raise OSError(state["error"], os.strerror(state["error"]))
        data = data[:3] if stream == 1 else data  # as a pipe that is almost full
        state[stream] += data
        return len(data)

    monkeypatch.setattr(programs.os, "write", write)
    return state


def test_a_full_disk_drops_lines_and_counts_them(written):
    output = programs.Output()
    written["error"] = errno.ENOSPC
    output.write(b"one\n")
    output.write(b"two\n")
    written["error"] = None
    output.write(b"three\n")
    output.report()
    assert written[1] == b"three\n"
    assert written[2].endswith(b"\n[launch] 2 lines of output could not be written\n")
