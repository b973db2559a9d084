"""Defines the flags of the commands that run PyTorch beside us."""

import os
import subprocess
import sys

from absl import flags

from pretrain.runtime.errors import UserError

PEER_PYTHON = flags.DEFINE_string("peer_python", sys.executable, "Where torch is installed.")
CORES = len(os.sched_getaffinity(0))
THREADS = flags.DEFINE_integer("threads", CORES, "CPU threads of each contender.", 1)
JSON = flags.DEFINE_string("json", "", "A file to write everything to.")


def has_packages(python: str, *names: str) -> bool:
    """Returns whether this Python has all of these packages."""
    # Asked of the other Python itself, without importing them, which takes seconds.
    find = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))"
    return not subprocess.run([python, "-c", find, *names]).returncode


def check_peer_packages() -> None:
    """Raises a UserError if the Python of the peers lacks what they are written in."""
    if not has_packages(PEER_PYTHON.value, "torch", "transformers"):
        raise UserError(
            f"{PEER_PYTHON.value} has no torch and transformers: name a Python that has them with "
            "--peer_python, or install them there"
        )
