"""Who takes part in a run, and being asked to stop."""

import errno
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from pretrain.distributed import processes
from pretrain.runtime.errors import UserError
from tests.support import commands
from tests.support.tiny_runs import free_address

STOP = """
import os, signal, sys, time
from pretrain.distributed import processes

processes.join()
stop = processes.Stop()
assert not stop()
os.kill(os.getpid(), int(sys.argv[1]))
end = time.monotonic() + 60
while not stop() and time.monotonic() < end:
    time.sleep(0.05)
print("stopped" if stop() else "went on")
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_run_of_one_process_stops_at_either_signal_and_speaks_of_no_other(signum):
    done = commands.run("-c", STOP, int(signum))
    assert done.stdout == "stopped\n", done.stderr
    assert ("SIGTERM" in done.stderr) == (signum == signal.SIGTERM)
    assert ("stopping after this step" in done.stderr) == (signum == signal.SIGINT)


REST = """
import sys, time
from pretrain.distributed import processes

processes.join()
print("joined", flush=True)
sys.stdin.readline()
time.sleep(5)
print("there")
"""


@pytest.mark.slow
def test_a_process_that_is_alone_may_be_stopped_for_longer_than_jax_waits_for_a_sign():
    with subprocess.Popen(
        [sys.executable, "-c", REST],
        cwd=pathlib.Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout.readline() == "joined\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(110)  # JAX's own limit is 100
        process.send_signal(signal.SIGCONT)
        assert process.communicate("\n")[0] == "there\n"
    assert process.returncode == 0


def test_the_first_interrupt_of_several_processes_is_a_sigterm_and_the_second_interrupts(
    monkeypatch,
):
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, signum: sent.append((pid, signum)))
    before = signal.getsignal(signal.SIGINT)
    try:
        processes.ask_to_stop(signal.SIGINT, None)
        assert sent == [(os.getpid(), signal.SIGTERM)]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_that_joined_nothing_is_never_asked_to_stop():
    stop = processes.Stop()
    assert not any(stop() for _ in range(3))


@pytest.fixture
def announce(monkeypatch):
    """Sets the variables that say who takes part: address, count, number."""

    def announce(*values: str) -> None:
        for name, value in zip(processes.VARIABLES, values, strict=True):
            if value:
                monkeypatch.setenv(name, value)
            else:
                monkeypatch.delenv(name, raising=False)

    return announce


@pytest.mark.parametrize(("count", "limit"), [("1", processes.ALONE), ("2", 15)])
def test_one_process_that_is_announced_may_be_stopped_as_one_alone(
    announce, monkeypatch, count, limit
):
    given: dict = {}
    jax_library = processes.jax.distributed
    monkeypatch.setattr(jax_library, "is_initialized", lambda: False)
    monkeypatch.setattr(jax_library, "initialize", lambda **fields: given.update(fields))
    monkeypatch.setattr(processes.signal, "signal", lambda *_: None)
    monkeypatch.setattr(processes.lost_processes, "expect_peers", lambda _: None)
    monkeypatch.setattr(processes.progress, "set_process", lambda *_: None)
    announce(free_address(), count, "0")
    processes.join(heartbeat=5)
    assert given["heartbeat_timeout_seconds"] == limit


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
        (("", "2", "1"), "JAX_PROCESS_ID=1, but no JAX_COORDINATOR_ADDRESS"),
    ],
)
def test_variables_that_make_no_sense_are_refused_without_waiting(announce, values, reason):
    announce(*values)
    with pytest.raises(UserError, match=reason):
        processes.join()


def test_a_port_in_use_is_refused_where_it_is_listened_at(announce):
    with socket.create_server(("localhost", 0)) as other:
        address = f"localhost:{other.getsockname()[1]}"
        announce(address, "2", "0")
        with pytest.raises(UserError, match=r"port \d+ is in use on this machine"):
            processes.join()
        announce(address, "2", "1")
        processes.read_variables()


def test_a_machine_without_ipv6_is_left_to_jax(announce, monkeypatch):
    def refuse(_family):
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    announce("10.0.0.1:1234", "2", "0")
    monkeypatch.setattr(processes.socket, "socket", refuse)
    assert processes.read_variables() == {"process_id": 0, "num_processes": 2}


def test_variables_that_make_sense_are_taken_and_may_be_fewer(announce):
    announce("10.0.0.1:1234", "4", "3")
    assert processes.read_variables() == {"process_id": 3, "num_processes": 4}
    announce("", "4", "3")
    assert processes.read_variables() == {"process_id": 3, "num_processes": 4}
    announce("", "", "")
    assert processes.read_variables() == {}


def test_what_is_at_the_coordinators_address_is_described(announce):
    announce("", "2", "1")
    nobody = "nobody answers at JAX_COORDINATOR_ADDRESS="
    with socket.create_server(("localhost", 0)) as server:
        for address, reason in {
            "no-such-host.invalid:1234": rf"{nobody}no-such-host.*: \w+",
            free_address(): rf"{nobody}.*: Connection refused",
            f"localhost:{server.getsockname()[1]}": (
                "somebody answers at .*, but not all of JAX_NUM_PROCESSES=2 have come"
            ),
        }.items():
            assert re.match(reason, processes.describe_coordinator(address))


JOIN = "import pretrain.distributed.processes as p; p.join(timeout=3)"


def test_who_waits_in_vain_ends_and_listens_on_loopback_alone():
    address = free_address()
    own = dict(zip(processes.VARIABLES, (address, "2", "0"), strict=True))
    process = commands.Process([sys.executable, "-c", JOIN], os.environ | own)
    listens_at: set[str] = set()
    while not listens_at:
        assert process.poll() is None
        listens_at = read_listening(int(address.partition(":")[2]))
    assert listens_at <= {"0100007F", "0000000000000000FFFF00000100007F", f"{1 << 24:032X}"}
    _, said = process.communicate()
    assert process.returncode == 1
    start = "error: process 0 waited 3 s (--join_timeout) for all of the run to join: somebody"
    assert said.splitlines()[-1].startswith(start)


def read_listening(port: int) -> set[str]:
    """The addresses at which this machine listens to a port."""
    tables = [pathlib.Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6")]
    rows = [row.split() for table in tables for row in table.splitlines()[1:]]
    places = [row[1].partition(":") for row in rows if row[3] == "0A"]
    return {host for host, _, name in places if int(name, 16) == port}


def test_a_coordinator_listens_where_it_is_asked_to(announce, monkeypatch):
    announce("localhost:1234", "2", "0")
    assert processes.read_variables()["coordinator_bind_address"] == "localhost:1234"
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "[::]:1234")
    assert "coordinator_bind_address" not in processes.read_variables()
