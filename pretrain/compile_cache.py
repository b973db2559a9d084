"""Compiled programs are kept on disk, for the next life of a run and for others of its recipe."""

import hashlib
import os
import pathlib

import jax
from jax.experimental.compilation_cache import compilation_cache

CPU = pathlib.Path("/proc/cpuinfo")


def keep(folder: str | os.PathLike) -> None:
    """From now on, has JAX keep in `folder` what takes it a second or more to compile.

    JAX_COMPILATION_CACHE_DIR, where it is set, is used instead; JAX_ENABLE_COMPILATION_CACHE=false
    keeps nothing.  A CPU's programs lie apart by what the CPU can do: JAX itself does not ask.
    """
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    kind = jax.default_backend()
    path = pathlib.Path(folder) / (f"cpu-{_abilities()}" if kind == "cpu" else kind)
    jax.config.update("jax_compilation_cache_dir", str(path.absolute()))
    compilation_cache.reset_cache()  # what was compiled before has opened the one before


def _abilities() -> str:
    """A short name for the instructions that this machine's CPU knows."""
    try:
        lines = CPU.read_text().splitlines()
    except OSError:  # not Linux
        lines = [" ".join(os.uname()) if hasattr(os, "uname") else os.name]
    told = sorted({line for line in lines if line.startswith(("flags", "Features"))}) or lines
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]
