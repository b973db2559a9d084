"""Output that cannot be written ends nothing, and dropped lines are counted."""

import errno
import os

import pytest

from launch import programs


@pytest.fixture
def written(monkeypatch):
    """Replaces the streams: writes to stdout raise the error set, those to stderr are listed."""
    state = {"error": None, "stdout": b"", "stderr": b""}

    def write(stream: int, data: bytes) -> int:
        if stream == 1 and state["error"]:
            raise OSError(state["error"], os.strerror(state["error"]))
        data = data[:3] if stream == 1 else data  # as a pipe that is almost full
        state["stdout" if stream == 1 else "stderr"] += data
        return len(data)

    monkeypatch.setattr(programs.os, "write", write)
    return state


def test_lines_arrive_whole_over_a_narrow_pipe(written):
    programs.Output().write(b"a line\n")
    assert written["stdout"] == b"a line\n"


def test_a_full_disk_drops_lines_and_counts_them(written):
    output = programs.Output()
    written["error"] = errno.ENOSPC
    output.write(b"one\n")
    output.write(b"two\n")
    written["error"] = None
    output.write(b"three\n")
    output.report()
    assert written["stdout"] == b"three\n"
    assert not output.is_closed
    first, last = written["stderr"].decode().splitlines()
    assert "the program goes on: No space left on device" in first
    assert last == "[launch] 2 lines of output could not be written"


def test_a_closed_pipe_is_remembered(written):
    output = programs.Output()
    written["error"] = errno.EPIPE
    output.write(b"one\n")
    assert output.is_closed
