"""Hearing that a process of the run was lost, and ending with a line that says which.

JAX watches over its processes by their heartbeats.  When one is lost, it says so in its log and
aborts the others, which are waiting for the lost one inside a collective.  That log, written by
C++ to file descriptor 2, is the only place that tells: nothing is raised, and of the callback that
there is the argument cannot be turned into Python (jaxlib 0.10).  So the log is read.
"""

import ctypes
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NoReturn

from pretrain.runtime.addresses import without_credentials
from pretrain.runtime.errors import TRY_AGAIN

FATAL = "JAX distributed service detected fatal errors"
ENTRY = re.compile(r"^(?=[IWEF]\d{4} )", re.MULTILINE)  # where an entry of the log begins
OURS = re.compile(r"coordination_|preemption_sync_manager\.|CoordinationServiceError|client\.h:")
SILENT = re.compile(r"stopped sending heartbeats\):\n((?:\d+\n)+)")
BROKEN = re.compile(r"gloo|nccl|coordination|connection|socket|barrier|unavailable", re.IGNORECASE)
AGAIN = "start the run again and it goes on from its last checkpoint"
LIBC = ctypes.CDLL(None)
LINGER = 2.0  # seconds that the first process stays, since it is what tells the others


class Log:
    """The log of JAX, read until this process ends: what it says of lost processes becomes a line.

    Everything else that is written to file descriptor 2 is passed on.
    """

    def __init__(self, heartbeat: int, timeout: int):
        """Begins to read; `heartbeat` and `timeout` are those of `processes.join`."""
        self.heartbeat, self.timeout = heartbeat, timeout
        self.joined, self.own, self.count = False, 0, 0
        self.before, self.stderr = sys.stderr, os.dup(2)
        read, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        # A terminal stays one, and what Python says needs no detour.
        sys.stderr = os.fdopen(os.dup(self.stderr), "w", buffering=1, errors="backslashreplace")
        self.aborts = _abort_slowly()
        self.reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self.reader.start()

    def join(self, own: int, count: int) -> None:
        """From now on, the loss of a process is one; this is process `own` of `count`."""
        self.own, self.count, self.joined = own, count, count > 1
        if not self.joined:
            self.close()

    def close(self) -> None:
        """Leaves everything as it was: there are no other processes."""
        os.dup2(self.stderr, 2)
        sys.stderr = self.before
        LIBC.signal(signal.SIGABRT, self.aborts)

    def _read(self, pipe: int) -> None:
        while chunk := os.read(pipe, 1 << 16):
            for entry in ENTRY.split(chunk.decode(errors="replace")):
                if FATAL in entry:
                    self._end([self._lost(entry)] if self.joined else self._missing(entry))
                if not (ENTRY.match(entry) and OURS.search(entry)):
                    os.write(self.stderr, entry.encode())

    def _end(self, why: Iterable[str]) -> NoReturn:
        if self.joined and self.own == 0:
            time.sleep(LINGER)
        os.write(self.stderr, b"error: ")
        for part in why:
            os.write(self.stderr, part.encode())
        os.write(self.stderr, b"\n")
        os._exit(TRY_AGAIN if self.joined else 1)

    def _lost(self, entry: str) -> str:
        """Why the run of joined processes ended."""
        silence = f"no sign of life for {self.heartbeat} s"
        silent = SILENT.search(entry)
        lost = [int(number) for number in silent[1].split()] if silent else []
        if self.own in lost:
            return (
                f"this process, {self.own} of {self.count}, gave {silence} and the others gave it "
                f"up: {AGAIN}"
            )
        if not lost and self.own:  # it is the first process that does not answer
            lost, silence = [0], silence if "DEADLINE" in entry else "its connection is broken"
        if not lost:
            return f"the processes of the run lost each other ({_status(entry)}): {AGAIN}"
        names, many = ", ".join(map(str, sorted(lost))), len(lost) > 1
        who = f"process{'es' * many} {names} of {self.count} {'were' if many else 'was'} lost"
        return f"{who} ({silence}; what was said there last may tell why): {AGAIN}"

    def _missing(self, entry: str) -> Iterator[str]:
        """Why the processes never came together; what may take a while to find out comes last."""
        address = os.environ.get("JAX_COORDINATOR_ADDRESS", "")
        who = f"process {os.environ.get('JAX_PROCESS_ID', '')}".strip()
        if "ALREADY_EXISTS" in entry:
            yield f"another process of {address} says that it is this one, {who}: JAX_PROCESS_ID"
            return
        yield f"{who} waited {self.timeout} s (--join_timeout) for all of the run to join: "
        late = address and "DEADLINE" in entry
        yield _answer(address) if late else " ".join([_status(entry), address]).strip()


def _abort_slowly() -> int | None:
    """From now on, a process that aborts first sleeps for as many seconds as SIGABRT's number, 6.

    That is time to read what it has said.  The handler is a function of C: at that moment Python
    may not be able to run.  Returns the handler before.
    """
    LIBC.signal.argtypes, LIBC.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    return LIBC.signal(signal.SIGABRT, ctypes.cast(LIBC.sleep, ctypes.c_void_p))


def _status(entry: str) -> str:
    return entry.split("absl::Status: ")[-1].splitlines()[0]


def _answer(address: str) -> str:
    """What there is at the coordinator's address."""
    host, _, port = address.rpartition(":")
    named = f"JAX_COORDINATOR_ADDRESS={address}"
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=2).close()
    except socket.gaierror:
        return f"the name in {named} is not known here"
    except OSError:
        return f"nobody listens at {named}, where process 0 should"
    count = f"JAX_NUM_PROCESSES={os.environ.get('JAX_NUM_PROCESSES')}"
    return f"somebody listens at {named}, but not all of {count} have come"


_log: Log | None = None


def listen(heartbeat: int, timeout: int) -> Log:
    """Begins to hear of processes that are lost."""
    global _log
    _log = Log(heartbeat, timeout)
    return _log


def several() -> bool:
    """Has this run other processes, which are heard?"""
    return _log is not None and _log.joined


def end(code: int, message: str, error: BaseException | None = None) -> NoReturn:
    """Ends this process with a message; the others will notice, or have ended before.

    The message is printed without the credentials of the addresses in it.
    An `error` that can follow from the loss of another process is told of only if in so many
    seconds none turns out to be lost: that line would say more.
    """
    message = without_credentials(message)  # a traceback's, too
    if not (_log and _log.joined):
        print(message, file=sys.stderr)
        sys.exit(code)
    if _follows(error):
        time.sleep(_log.heartbeat + 5)
    print(message, file=sys.stderr, flush=True)
    os._exit(code)


def _follows(error: BaseException | None) -> bool:
    while error and not BROKEN.search(str(error)):
        error = error.__cause__ or error.__context__
    return error is not None
