"""News of lost processes become one line."""

import os

import pytest

from pretrain.distributed import failures
from pretrain.runtime.errors import UserError

UNHEALTHY = (
    "F1122 01:22:48.261367    8527 client.h:80] Terminating process because the JAX distributed "
    "service detected fatal errors. absl::Status: UNAVAILABLE: The following tasks are unhealthy "
    "(stopped sending heartbeats):\n{}The tasks have crashed.\n\nRPC: /xla.PollForError"
)

GONE = "F1122 01:22:48 8527 client.h:80] absl::Status: UNAVAILABLE: Failed to send RPC\nmore"

MUTE = "F1122 01:22:48 8527 client.h:80] absl::Status: DEADLINE_EXCEEDED: Deadline Exceeded\n\nRPC"


@pytest.fixture
def log():
    """(this process) -> the log of a run of eight, not read."""

    def log(own: int) -> failures.Log:
        log = object.__new__(failures.Log)
        log.heartbeat, log.timeout, log.own, log.count = 60, 300, own, 8
        return log

    return log


@pytest.mark.parametrize(
    ("own", "entry", "line"),
    [
        (0, UNHEALTHY.format("5\n"), "process 5 of 8 was lost (no sign of life for 60 s; "),
        (3, UNHEALTHY.format("5\n2\n"), "processes 2, 5 of 8 were lost (no sign of life for"),
        (3, UNHEALTHY.format("3\n5\n"), "this process, 3 of 8, gave no sign of life for 60 s"),
        (3, GONE, "process 0 of 8 was lost (its connection is broken; "),
        (3, MUTE, "process 0 of 8 was lost (no sign of life for 60 s; "),
        (0, GONE, "the processes of the run lost each other (UNAVAILABLE: Failed to send RPC)"),
    ],
)
def test_what_the_log_says_becomes_a_line_naming_lost_processes(log, own, entry, line):
    said = log(own)._lost(entry)
    assert said.startswith(line)
    assert said.endswith(": start the run again and it goes on from its last checkpoint")
    assert "\n" not in said


def test_what_is_no_news_of_processes_passes_through_unchanged(capfd):
    log = failures.Log(60, 300)
    os.write(2, b"I1122 1 a.cc:1] one\nE1122 1 coordination_service.cc:9] the\nother\n")
    os.write(2, b"I1122 1 b.cc:1] two\nplain\n")
    log.close()
    log.reader.join(timeout=60)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "I1122 1 a.cc:1] one\nI1122 1 b.cc:1] two\nplain\nafter\n"


@pytest.mark.parametrize(
    ("error", "follows"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer"), True),
        (RuntimeError("INTERNAL: NCCL operation failed"), True),
        (UserError("mesh data=3 does not use all of 4 devices"), False),
        (None, False),
    ],
)
def test_errors_that_a_lost_process_can_cause_are_told_apart(error, follows):
    assert failures._follows(error) == follows
    if error:
        wrapped = UserError("a checkpoint could not be written")
        wrapped.__cause__ = error
        assert failures._follows(wrapped) == follows
