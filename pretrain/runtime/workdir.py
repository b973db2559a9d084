"""The folder of one run: who may write to it, and small files that are never seen half-written."""

import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import shlex
import socket
import sys
from collections.abc import Iterator
from typing import Any

from pretrain.runtime.addresses import without_credentials
from pretrain.runtime.errors import UserError

PRIVATE = 0o600  # for the owner alone
_held: set[int] = set()  # file descriptors of the locks this process holds


def _forget_locks() -> None:
    """A forked child shares the open file, and would keep the lock alive after its parent."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_forget_locks)


@contextlib.contextmanager
def locked(workdir: str | os.PathLike) -> Iterator[None]:
    """Holds `workdir` for this process alone; creates the folder.

    The lock ends with the process, however it ends, and its children do not hold it.  The file
    `lock` says who holds it and stays behind empty: deleting it would let two runs lock two
    different files of that name.

    Raises:
        UserError: another process, named in the message, is using `workdir`; or the file cannot
            be written, or is a link, which would empty another file.
    """
    check_writable(workdir)
    path = pathlib.Path(workdir, "lock")
    try:
        lock = _take(path)
    except OSError as error:
        why = "it is a link: remove it" if path.is_symlink() else error.strerror
        raise UserError(f"cannot lock {os.fspath(path)}: {why}") from error
    try:
        yield
    finally:
        _release(lock)


def _take(path: pathlib.Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, PRIVATE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_size:
            holder = _holder(lock)
            print(f"{path.parent}: taking over from {holder}, which is gone", file=sys.stderr)
        os.ftruncate(lock, 0)
        with contextlib.suppress(PermissionError):  # it is another's
            os.fchmod(lock, PRIVATE)
        os.pwrite(lock, json.dumps(_myself()).encode(), 0)
    except BlockingIOError:
        holder = _holder(lock)
        os.close(lock)
        advice = "wait for that run, stop it, or choose another workdir"
        raise UserError(f"{path.parent} is in use by {holder}; {advice}") from None
    except OSError:
        os.close(lock)
        raise
    _held.add(lock)
    return lock


def _release(lock: int) -> None:
    if lock in _held:  # not in a forked child
        _held.remove(lock)
        with contextlib.suppress(OSError):  # a full disk: what is in it harms nobody
            os.ftruncate(lock, 0)
        os.close(lock)


def _myself() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": without_credentials(shlex.join(sys.orig_argv)),
    }


def _holder(lock: int) -> str:
    try:
        who = json.loads(os.pread(lock, 1 << 16, 0))
        return f"pid {who['pid']} on host {who['host']} since {who['started']}: {who['command']}"
    except (ValueError, KeyError, TypeError):  # it is just being written
        return "another process"


def check_writable(workdir: str | os.PathLike) -> None:
    """Creates `workdir` and writes a file there, to find out now rather than at the first save.

    Raises:
        UserError: the folder cannot be made or written.
    """
    probe = pathlib.Path(workdir, f".probe-{socket.gethostname()}-{os.getpid()}")
    try:
        probe.parent.mkdir(parents=True, exist_ok=True)
        try:
            probe.write_text("x")
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write in {os.fspath(workdir)}: {error.strerror}") from error


def write_json(path: str | os.PathLike, value: Any, *, private: bool = False) -> None:
    """Writes `value` so that a reader, or a machine that loses power, finds the old or the new.

    Args:
        private: nobody else may read the file, as where it may hold addresses.
    """
    write_file(path, (json.dumps(value, indent=2) + "\n").encode(), private=private)


def write_file(path: str | os.PathLike, content: bytes, *, private: bool = False) -> None:
    """Writes a file likewise; a link of that name is replaced, and what it leads to stays."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}.tmp")
    draft.unlink(missing_ok=True)
    try:
        with open(draft, "xb", opener=open_private if private else None) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def open_private(path: str, how: int) -> int:
    """An `opener` of `open` that makes a file which its owner alone can read."""
    return os.open(path, how, PRIVATE)


def sync_folder(folder: str | os.PathLike) -> None:
    """Waits until the names in `folder` are on disk; not every file system can be asked."""
    descriptor = os.open(folder, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


def read_json(path: str | os.PathLike) -> Any:
    """The value in a JSON file.

    Raises:
        UserError: the file is missing, unreadable, or not JSON; the message says where.
    """
    try:
        return json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise UserError(f"{os.fspath(path)} is not JSON at {where}: {error.msg}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{os.fspath(path)} is not UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise UserError(f"{os.fspath(path)} is not ours: it is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise UserError(f"{os.fspath(path)} is not ours: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {os.fspath(path)}: {error.strerror}") from error
