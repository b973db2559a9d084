"""Who takes part in a run, and being asked to stop."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from pretrain import cli
from pretrain.distributed import failures, processes
from pretrain.runtime.errors import UserError
from tests.support.tiny_runs import ROOT, free_address


def test_the_first_interrupt_asks_to_stop_and_the_second_interrupts(monkeypatch):
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, signum: sent.append((pid, signum)))
    before = signal.getsignal(signal.SIGINT)
    try:
        processes._terminate(signal.SIGINT, None)
        assert sent == [(os.getpid(), signal.SIGTERM)]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_that_joined_nothing_is_never_asked_to_stop():
    stop = processes.Stop()
    assert not any(stop() for _ in range(3))


@pytest.fixture
def told(monkeypatch):
    """Sets the variables that say who takes part: address, count, number."""

    def told(*values: str) -> None:
        for name, value in zip(processes.VARIABLES, values, strict=True):
            monkeypatch.setenv(name, value)

    return told


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (("a:1", "two", "0"), "JAX_NUM_PROCESSES=two JAX_PROCESS_ID=0: give both numbers"),
        (("a:1", "2", "-1"), "JAX_PROCESS_ID=-1: give both numbers"),
        (("a:1", "2", ""), "JAX_COORDINATOR_ADDRESS=a:1 JAX_NUM_PROCESSES=2: give both numbers"),
        (("", "", "1"), "JAX_PROCESS_ID=1: give both numbers"),
        (("a:1", "2", "2"), "JAX_PROCESS_ID=2: processes are numbered from 0"),
        (("a:1", "0", "0"), "JAX_NUM_PROCESSES=0 JAX_PROCESS_ID=0: processes are numbered from 0"),
        (("a", "2", "1"), "an address is a host and a port"),
        (("a:70000", "2", "0"), "an address is a host and a port"),
        (("a:b", "2", "1"), "an address is a host and a port"),
    ],
)
def test_variables_that_make_no_sense_are_refused_before_anybody_is_waited_for(
    told, values, reason
):
    told(*values)
    with pytest.raises(UserError, match=reason):
        processes.join()


def test_a_port_that_is_in_use_is_refused_where_it_is_to_be_listened_at(told):
    with socket.create_server(("localhost", 0)) as other:
        address = f"localhost:{other.getsockname()[1]}"
        told(address, "2", "0")
        with pytest.raises(UserError, match=r"port \d+ is in use on this machine"):
            processes.join()
        told(address, "2", "1")
        processes._told()


def test_variables_that_make_sense_are_taken_and_a_cluster_may_know_the_rest(told):
    told("10.0.0.1:1234", "4", "3")
    assert processes._told() == {"process_id": 3, "num_processes": 4}
    told("", "4", "3")
    assert processes._told() == {"process_id": 3, "num_processes": 4}
    told("", "", "")
    assert processes._told() == {}


JOIN = "import pretrain.distributed.processes as p; p.join(); print('joined', flush=True); input()"


def test_the_processes_of_one_machine_meet_where_no_other_can_come():
    address = free_address()
    port = address.partition(":")[2]
    own = dict(zip(processes.VARIABLES, (address, "1", "0"), strict=True))
    process = subprocess.Popen(
        [sys.executable, "-c", JOIN],
        cwd=ROOT,
        env=os.environ | own,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == "joined\n"
    rows = "".join(pathlib.Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    process.communicate("\n")
    (where,) = {
        row.split()[1].rpartition(":")[0]
        for row in rows.splitlines()
        if f":{int(port):04X} " in row and " 0A " in row
    }
    assert where in {"0100007F", "0000000000000000FFFF00000100007F", f"{1 << 24:032X}"}


def test_a_coordinator_listens_where_it_is_asked_to(told, monkeypatch):
    told("localhost:1234", "2", "0")
    assert processes._told()["coordinator_bind_address"] == "localhost:1234"
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "[::]:1234")
    assert "coordinator_bind_address" not in processes._told()


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
def test_what_the_log_says_of_lost_processes_becomes_a_line_that_names_them(log, own, entry, line):
    said = log(own)._lost(entry)
    assert said.startswith(line)
    assert said.endswith(": start the run again and it goes on from its last checkpoint")
    assert "\n" not in said


def test_what_is_no_news_of_processes_is_passed_on_whole_and_closing_leaves_all_as_it_was(capfd):
    log = failures.Log(60, 300)
    os.write(2, b"I1122 1 a.cc:1] one\nE1122 1 coordination_service.cc:9] the\nother\n")
    os.write(2, b"I1122 1 b.cc:1] two\nplain\n")
    log.close()
    log.reader.join(timeout=60)
    os.write(2, b"after\n")
    assert capfd.readouterr().err == "I1122 1 a.cc:1] one\nI1122 1 b.cc:1] two\nplain\nafter\n"


def test_an_error_in_one_process_alone_is_the_line_and_the_exit_code(capsys):
    with pytest.raises(SystemExit) as ended, cli.speaking():
        raise UserError("no such thing")
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: no such thing\n"


def test_a_line_that_ends_a_process_tells_of_no_credentials(capsys):
    with pytest.raises(SystemExit), cli.speaking():
        raise UserError("text:s3://key:secret@bucket/a.txt: cannot be read")
    assert capsys.readouterr().err == "error: text:s3://bucket/a.txt: cannot be read\n"


@pytest.mark.parametrize(
    ("error", "follows"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer"), True),
        (RuntimeError("INTERNAL: NCCL operation failed"), True),
        (UserError("mesh data=3 does not use all of 4 devices"), False),
        (None, False),
    ],
)
def test_an_error_that_a_lost_process_can_have_caused_is_told_from_others(error, follows):
    assert failures._follows(error) == follows
    if error:
        wrapped = UserError("a checkpoint could not be written")
        wrapped.__cause__ = error
        assert failures._follows(wrapped) == follows
