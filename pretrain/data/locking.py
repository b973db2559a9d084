"""One process at a time: a second one waits, and says for whom."""

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from pretrain.data.progress import say


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file; the system frees it however the process ends."""
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"waiting for {file.read() or 'another process'}, which does the same: {path.stem}")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield
