"""One process at a time: a second one waits, and says for whom."""

import contextlib
import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from pretrain.runtime.errors import UserError
from pretrain.runtime.progress import say


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the lock file; the system frees it however the process ends.

    Raises:
        UserError: it is a link, which may lead to a file that is no lock.
    """
    with open(path, "a+", opener=_open_no_link) as file:
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


def _open_no_link(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise UserError(f"{path} is a link, but a lock is a file of its own: remove it") from error
