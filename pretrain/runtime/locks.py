"""Locks between processes, which the system frees however a process ends."""

import contextlib
import datetime
import errno
import fcntl
import json
import os
import pathlib
import shlex
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pretrain.runtime.addresses import remove_credentials
from pretrain.runtime.errors import UserError
from pretrain.runtime.files import PRIVATE, PathLike, create_folder
from pretrain.runtime.progress import say

_locks: set[int] = set()  # file descriptors of the locks of this process


def _forget_locks() -> None:
    # A forked child has its parent's descriptors, and would keep the locks alive after it.
    while _locks:
        os.close(_locks.pop())


os.register_at_fork(after_in_child=_forget_locks)


def check_writable(folder: PathLike) -> None:
    """Creates `folder` and writes a file there, to fail now rather than at the first save.

    Raises:
        UserError: the folder cannot be made or written.
    """
    probe = pathlib.Path(folder, f".probe-{socket.gethostname()}-{os.getpid()}")
    try:
        create_folder(probe.parent)
        try:
            probe.write_text("x")
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write in {os.fspath(folder)}: {error.strerror}") from error


@contextlib.contextmanager
def lock_workdir(workdir: PathLike) -> Iterator[None]:
    """Reserves `workdir` for this process; creates the folder.

    Work that fails before it has left a file there leaves the folder as it was, or absent.

    Raises:
        UserError: another process, named in the message, is using `workdir`; or the file cannot
            be written, or is a link, which would empty another file.
    """
    path = pathlib.Path(workdir, "lock")
    absent = [x for x in (path, *path.parents) if not os.path.lexists(x)]
    check_writable(workdir)
    try:
        lock = _open_lock(path, PRIVATE, _lock_or_refuse)
        with _close_on_error(lock):
            if os.fstat(lock).st_size:
                gone = _read_owner(lock)
                say(f"{path.parent}: taking over from {gone}, which is gone", every_process=True)
            with contextlib.suppress(PermissionError):  # another user made the file
                os.fchmod(lock, PRIVATE)
            _write_owner(lock)
    except OSError as error:
        raise UserError(f"cannot lock {os.fspath(path)}: {_explain(error)}") from error
    # Outside of the `try`: an OSError of the caller's work is not the lock's.
    with _hold(lock):
        try:
            yield
        except BaseException:
            if lock in _locks:  # not in a forked child
                _remove_unused(path, absent)
            raise


def _remove_unused(lock: pathlib.Path, absent: Sequence[pathlib.Path]) -> None:
    """Removes a lock and what was absent before it, unless the folder has got a file."""
    folder = lock.parent
    with contextlib.suppress(OSError):
        if folder in absent:
            for name in {*os.listdir(folder)} - {lock.name}:
                os.rmdir(folder / name)  # fails for a file, and then all stays
        if os.listdir(folder) == [lock.name] and lock in absent:
            lock.unlink()
            for path in absent[1:]:
                path.rmdir()


@contextlib.contextmanager
def lock_build(path: PathLike) -> Iterator[None]:
    """Waits until no other process holds the lock file `path`, and says for whom it waits.

    The file is removed at the end; those that wait for it then lock another.

    Raises:
        UserError: the file cannot be written, or is a link, which would empty another file.
    """
    path = pathlib.Path(path)
    try:
        # Users who share a cache wait for one another.
        lock = _open_lock(path, 0o666, _lock_or_wait)
        with _close_on_error(lock):
            _write_owner(lock)
    except OSError as error:
        raise UserError(f"cannot lock {os.fspath(path)}: {_explain(error)}") from error
    with _hold(lock):
        try:
            yield
        finally:
            if lock in _locks:  # not in a forked child
                with contextlib.suppress(OSError):  # of another user: it stays, and is empty
                    path.unlink()


def _open_lock(path: pathlib.Path, mode: int, acquire: Callable[[int, pathlib.Path], None]) -> int:
    """Opens a lock file and locks it by `acquire`, which raises or waits if another has it."""
    while True:
        # A link could lead to a file of the user's that is no lock, and would be emptied.
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode)
        with _close_on_error(lock):
            acquire(lock, path)
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)  # its holder has removed it meanwhile: the next one has another file


def _explain(error: OSError) -> str:
    return "it is a link: remove it" if error.errno == errno.ELOOP else str(error.strerror)


@contextlib.contextmanager
def _close_on_error(lock: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        os.close(lock)
        raise


@contextlib.contextmanager
def _hold(lock: int) -> Iterator[None]:
    _locks.add(lock)  # what a forked child is to close
    try:
        yield
    finally:
        if lock in _locks:  # not in a forked child
            _locks.remove(lock)
            with contextlib.suppress(OSError):  # a full disk: the old name harms nobody
                # Emptied, not deleted: else two runs could lock two different files of that name.
                os.ftruncate(lock, 0)
            os.close(lock)


def _lock_or_refuse(lock: int, path: pathlib.Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        advice = "wait for that run, stop it, or choose another workdir"
        raise UserError(f"{path.parent} is in use by {_read_owner(lock)}; {advice}") from None


def _lock_or_wait(lock: int, path: pathlib.Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = _read_owner(lock)
        say(f"waiting for {owner}, which does the same: {path.stem}", every_process=True)
        fcntl.flock(lock, fcntl.LOCK_EX)


def _write_owner(lock: int) -> None:
    os.ftruncate(lock, 0)
    os.pwrite(lock, json.dumps(_describe_process()).encode(), 0)


def _describe_process() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": remove_credentials(shlex.join(sys.orig_argv)),
    }


def _read_owner(lock: int) -> str:
    try:
        owner = json.loads(os.pread(lock, 1 << 16, 0))
        return (
            f"pid {owner['pid']} on host {owner['host']} since {owner['started']}: "
            f"{owner['command']}"
        )
    except (ValueError, KeyError, TypeError):  # its owner is just writing it
        return "another process"
