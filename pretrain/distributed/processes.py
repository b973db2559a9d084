"""The processes of a run: joining them, and hearing that they are asked to stop."""

import errno
import os
import re
import signal
import socket
import sys
from typing import Any

import jax
from jax.experimental import multihost_utils

from pretrain.distributed import failures
from pretrain.runtime import progress
from pretrain.runtime.errors import UserError

LOOPBACK = re.compile(r"(localhost|127(\.\d+){3}|\[::1\]):")
VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def join(heartbeat: int = 60, timeout: int = 300) -> None:
    """Joins all processes of this run into one machine; call before anything touches a device.

    Cloud TPU, Slurm and MPI are recognised; otherwise JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES
    and JAX_PROCESS_ID say it.  One process alone joins itself, since only a joined process
    finishes its step and saves when it is told to terminate.  Ctrl-C tells it so too, once.

    A process that finds nobody to join ends with a line and exit code 1, one that later loses
    another with exit code 75: the same command again goes on.

    Args:
        heartbeat: seconds without a sign of life after which a process counts as lost.
        timeout: seconds to wait for all to join.

    Raises:
        UserError: the variables contradict each other, or the address is in use.
    """
    if jax.distributed.is_initialized():  # by an earlier run of the same process
        return
    told = _told()
    signal.signal(signal.SIGINT, _terminate)
    log = failures.listen(heartbeat, timeout)
    told |= {"initialization_timeout": timeout, "heartbeat_timeout_seconds": heartbeat}
    try:
        jax.distributed.initialize(**told)
    except (ValueError, RuntimeError) as error:
        log.close()
        if said := _variables():
            missing = " and no ".join(name for name in VARIABLES if not os.environ.get(name))
            why = f"but no {missing}" if missing else f"the processes cannot be joined: {error}"
            raise UserError(f"{said}, {why}") from error
        if isinstance(error, RuntimeError):
            raise
        _join_alone()  # there is no cluster that JAX knows
        return
    if "process_id" not in told:
        told |= {"process_id": jax.process_index(), "num_processes": jax.process_count()}
    log.join(told["process_id"], told["num_processes"])
    progress.set_process(told["process_id"], told["num_processes"])


def _join_alone() -> None:
    address = f"localhost:{_free_port()}"
    jax.distributed.initialize(address, 1, 0, coordinator_bind_address=address)


def _told() -> dict[str, Any]:
    """What the variables say of the processes, as `jax.distributed.initialize` takes it."""
    names = {"process_id": "JAX_PROCESS_ID", "num_processes": "JAX_NUM_PROCESSES"}
    given = {name: os.environ.get(variable, "") for name, variable in names.items()}
    if not any(given.values()):
        return {}
    if not all(value.isdecimal() for value in given.values()):
        raise UserError(f"{_variables()}: give both numbers, how many processes and which is this")
    told: dict[str, Any] = {name: int(value) for name, value in given.items()}
    if told["process_id"] >= told["num_processes"]:
        raise UserError(f"{_variables()}: processes are numbered from 0")
    address = os.environ.get("JAX_COORDINATOR_ADDRESS", "")
    if address and not (re.fullmatch(r".+:\d+", address) and _port(address) < 1 << 16):
        raise UserError(f"{_variables()}: an address is a host and a port, as 10.0.0.1:1234")
    if address and told["process_id"] == 0 and "JAX_COORDINATOR_BIND_ADDRESS" not in os.environ:
        _check_free(_port(address))
        if LOOPBACK.match(address):  # by default JAX listens to the whole network
            told["coordinator_bind_address"] = address
    return told


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _check_free(port: int) -> None:
    """UserError if another program listens here, of which JAX itself may die without a word."""
    family = socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET
    with socket.socket(family) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                return  # it is not for us to know
            raise UserError(f"{_variables()}: port {port} is in use on this machine") from error


def _variables() -> str:
    return " ".join(f"{name}={value}" for name in VARIABLES if (value := os.environ.get(name)))


def _terminate(_signal, _frame) -> None:
    print("stopping after this step; Ctrl-C again stops at once", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


class Stop:
    """`stop()` is True once a process was told to terminate: in all of them at the same call."""

    def __init__(self):
        self.calls, self.asked = 0, False

    def __call__(self) -> bool:
        self.calls += 1
        if not self.asked and jax.distributed.is_initialized():
            self.asked = multihost_utils.reached_preemption_sync_point(self.calls)
        return self.asked
