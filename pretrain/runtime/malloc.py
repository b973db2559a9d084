"""Tunes glibc's allocator for large arrays."""

import ctypes
import importlib.util
import os
import sys

ACCELERATORS = ("libtpu", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm7_plugin")


def keep_memory() -> None:
    """Makes the process keep freed memory, on a CPU alone; call before JAX starts its threads."""
    # XLA allocates its temporaries anew at every step.  By default glibc has returned such large
    # blocks to the kernel by then, and a fifth of a step goes into page faults.
    # An accelerator has an allocator of its own, and the host's memory is better given back.
    alone = os.environ.get("JAX_PLATFORMS") == "cpu" or not any(
        importlib.util.find_spec(name) for name in ACCELERATORS
    )
    if alone and sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        m_trim_threshold, m_top_pad, m_mmap_max, m_arena_max = -1, -2, -4, -8
        # Blocks are shared by all threads, and never mapped apart, trimmed or asked for singly.
        libc.mallopt(m_arena_max, 1)
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)
        libc.mallopt(m_top_pad, 2**26)
