"""The processes of a run: joining them, and hearing that they are asked to stop."""

import errno
import os
import pathlib
import re
import signal
import socket
import sys
import threading
from typing import Any

import jax
from jax.experimental import multihost_utils

from pretrain.distributed import lost_processes
from pretrain.runtime import progress
from pretrain.runtime.errors import UserError

LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\]):")
VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
ALONE = 30 * 24 * 3600  # seconds after which JAX ends a process that has given no sign of life
_interrupted = threading.Event()  # of a process that is alone: it was asked to stop by Ctrl-C
JOINED = "QUARTET_JOINED"  # names a file in which `launch.attempt` wants to read who has joined


def join(heartbeat: int = 60, timeout: int = 300) -> None:
    """Joins all processes of this run into one machine; call before anything touches a device.

    Cloud TPU, Slurm and MPI are recognised; otherwise JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES
    and JAX_PROCESS_ID say it.  A process that finds nobody to join ends with exit code 1.

    Args:
        heartbeat: seconds without a sign of life after which a process counts as lost, see
            `lost_processes.watch_peers`.
        timeout: seconds to wait for all to join.

    Raises:
        UserError: the variables contradict each other, or the address is in use.
    """
    if jax.distributed.is_initialized():  # by an earlier run of the same process
        return
    given = read_variables()
    # Python's handler would break off the step, and with it this process's part of a collective.
    signal.signal(signal.SIGINT, ask_to_stop)
    # JAX counts from the last beat, of which it sends one in half its limit: at three times ours
    # it never speaks first, and still does where the processes share no workdir.
    # Nobody waits for a process that is alone: it may be stopped for days, as by Ctrl-Z.
    jax_limit = ALONE if given.get("num_processes") == 1 else 3 * heartbeat
    # Above our own limit, as JAX would abort without a line.
    given |= {"heartbeat_timeout_seconds": jax_limit, "initialization_timeout": timeout + 60}
    timer = threading.Timer(timeout, _end_unjoined, [timeout])
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(**given)
    except (ValueError, RuntimeError) as error:
        if values := _list_variables():
            missing = " and no ".join(name for name in VARIABLES if not os.environ.get(name))
            why = f"but no {missing}" if missing else f"the processes cannot be joined: {error}"
            raise UserError(f"{values}, {why}") from error
        if isinstance(error, RuntimeError):
            raise
        # There is no cluster that JAX knows.  One process alone joins itself, since only a joined
        # process finishes its step and saves when it is told to terminate.
        _join_alone()
        return
    finally:
        timer.cancel()
    if "process_id" not in given:
        given |= {"process_id": jax.process_index(), "num_processes": jax.process_count()}
    process, count = given["process_id"], given["num_processes"]
    progress.set_process(process, count)
    if count > 1:
        lost_processes.expect_peers(jax_limit)
        if file := os.environ.get(JOINED):
            pathlib.Path(file).write_text(f"process {process} of {count}")


def _join_alone() -> None:
    address = f"localhost:{_free_port()}"
    jax.distributed.initialize(
        address, 1, 0, coordinator_bind_address=address, heartbeat_timeout_seconds=ALONE
    )


def _end_unjoined(timeout: int) -> None:
    who = f"process {os.environ.get('JAX_PROCESS_ID', '')}".strip()
    line = f"error: {who} waited {timeout} s (--join_timeout) for all of the run to join"
    if address := os.environ.get("JAX_COORDINATOR_ADDRESS"):
        line += f": {describe_coordinator(address)}"
    print(line, file=sys.stderr, flush=True)
    os._exit(1)


def describe_coordinator(address: str) -> str:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except OSError as error:
        return f"nobody answers at JAX_COORDINATOR_ADDRESS={address}: {error.strerror or error}"
    count = os.environ.get("JAX_NUM_PROCESSES")
    return f"somebody answers at {address}, but not all of JAX_NUM_PROCESSES={count} have come"


def read_variables() -> dict[str, Any]:
    """Returns what the variables say of the processes, as `jax.distributed.initialize` takes it.

    Raises:
        UserError: they contradict each other, or the port is in use.
    """
    names = {"process_id": "JAX_PROCESS_ID", "num_processes": "JAX_NUM_PROCESSES"}
    texts = {name: os.environ.get(variable, "") for name, variable in names.items()}
    if not any(texts.values()):
        return {}
    if not all(text.isdecimal() for text in texts.values()):
        raise UserError(f"{_list_variables()}: give both numbers, the count and this process's")
    given: dict[str, Any] = {name: int(text) for name, text in texts.items()}
    if given["process_id"] >= given["num_processes"]:
        raise UserError(f"{_list_variables()}: processes are numbered from 0")
    address = os.environ.get("JAX_COORDINATOR_ADDRESS", "")
    if address and not (re.fullmatch(r".+:\d+", address) and _port(address) < 1 << 16):
        raise UserError(f"{_list_variables()}: an address is a host and a port, as 10.0.0.1:1234")
    if address and given["process_id"] == 0 and "JAX_COORDINATOR_BIND_ADDRESS" not in os.environ:
        _check_free(_port(address))
        if LOOPBACK.match(address):  # by default JAX listens to the whole network
            given["coordinator_bind_address"] = address
    return given


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _check_free(port: int) -> None:
    # JAX itself may die in silence where another program listens.
    # As JAX's coordinator binds: to all addresses, of IPv4 too where there is IPv6.
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    try:
        with socket.socket(family) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("", port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return  # JAX will say what is wrong; perhaps IPv6 is off
        raise UserError(f"{_list_variables()}: port {port} is in use on this machine") from error


def _list_variables() -> str:
    return " ".join(f"{name}={value}" for name in VARIABLES if (value := os.environ.get(name)))


def ask_to_stop(_signal, _frame) -> None:
    """Handles the first Ctrl-C as a wish to stop after this step; a second one interrupts."""
    print("stopping after this step; Ctrl-C again stops at once", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if jax.distributed.is_initialized() and not lost_processes.is_multiprocess():
        _interrupted.set()  # nobody else need know; JAX would speak of a SIGTERM
    else:
        # JAX listens to SIGTERM alone, and tells the other processes.
        os.kill(os.getpid(), signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


class Stop:
    """Returns True from a call on, the same one in all processes, after one was asked to stop."""

    def __init__(self):
        self.calls, self.asked = 0, False

    def __call__(self) -> bool:
        # Counted in every process alike: JAX agrees on a call by its number.
        self.calls += 1
        if not self.asked and jax.distributed.is_initialized():
            is_alone = not lost_processes.is_multiprocess()
            self.asked = is_alone and _interrupted.is_set()
            self.asked |= multihost_utils.reached_preemption_sync_point(self.calls)
        return self.asked
