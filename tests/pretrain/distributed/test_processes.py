"""Who takes part in a run, and being asked to stop."""

import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from pretrain.distributed import processes
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
def test_variables_that_make_no_sense_are_refused_without_waiting(told, values, reason):
    told(*values)
    with pytest.raises(UserError, match=reason):
        processes.join()


def test_a_port_in_use_is_refused_where_it_is_listened_at(told):
    with socket.create_server(("localhost", 0)) as other:
        address = f"localhost:{other.getsockname()[1]}"
        told(address, "2", "0")
        with pytest.raises(UserError, match=r"port \d+ is in use on this machine"):
            processes.join()
        told(address, "2", "1")
        processes._told()


def test_variables_that_make_sense_are_taken_and_may_be_fewer(told):
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
