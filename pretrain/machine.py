"""The processes of a run: joining them, and hearing that they are asked to stop."""

import ctypes
import importlib.util
import os
import signal
import socket
import sys

import jax
from jax.experimental import multihost_utils

# bfloat16 products per second of one device, as its maker states them.
PEAKS = {
    "TPU v2": 22.5e12,
    "TPU v3": 61.5e12,
    "TPU v4": 275e12,
    "TPU v5 lite": 197e12,
    "TPU v5": 459e12,
    "TPU v6 lite": 918e12,
    "NVIDIA A100": 312e12,
    "NVIDIA H100": 989e12,
    "NVIDIA H200": 989e12,
    "Tesla V100": 125e12,
}


ACCELERATORS = ("libtpu", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin")


def keep_memory() -> None:
    """On a CPU alone, lets the process keep freed memory; call before JAX starts its threads.

    XLA asks for its temporaries anew at every step.  By default glibc has given such large
    pieces back to the kernel by then, and a fifth of a step goes into page faults.
    """
    alone = os.environ.get("JAX_PLATFORMS") == "cpu" or not any(
        importlib.util.find_spec(name) for name in ACCELERATORS
    )
    if alone and sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        m_trim_threshold, m_top_pad, m_mmap_max, m_arena_max = -1, -2, -4, -8
        libc.mallopt(m_arena_max, 1)
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
        libc.mallopt(m_top_pad, 2**26)


def join() -> None:
    """Joins all processes of this run into one machine; call before anything touches a device.

    Cloud TPU, Slurm and MPI are recognised; otherwise JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES
    and JAX_PROCESS_ID say it.  One process alone joins itself, since only a joined process
    finishes its step and saves when it is told to terminate.  Ctrl-C tells it so too, once.
    """
    if jax.distributed.is_initialized():  # by an earlier run of the same process
        return
    signal.signal(signal.SIGINT, _terminate)
    if count := os.environ.get("JAX_NUM_PROCESSES"):
        jax.distributed.initialize(
            num_processes=int(count), process_id=int(os.environ["JAX_PROCESS_ID"])
        )
        return
    try:
        jax.distributed.initialize()
    except ValueError:  # no cluster that JAX knows
        address = f"localhost:{_free_port()}"
        jax.distributed.initialize(address, 1, 0, coordinator_bind_address=address)


def _terminate(_signal, _frame) -> None:
    print("stopping after this step; Ctrl-C again stops at once", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.kill(os.getpid(), signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


def peak() -> float | None:
    """Peak operations per second of all devices together, where it is known."""
    kind = jax.devices()[0].device_kind
    known = [peak for name, peak in PEAKS.items() if kind.startswith(name)]
    return max(known) * jax.device_count() if known else None


class Stop:
    """`stop()` is True once a process was told to terminate: in all of them at the same call."""

    def __init__(self):
        self.calls, self.asked = 0, False

    def __call__(self) -> bool:
        self.calls += 1
        if not self.asked and jax.distributed.is_initialized():
            self.asked = multihost_utils.reached_preemption_sync_point(self.calls)
        return self.asked
