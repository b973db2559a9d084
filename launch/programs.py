"""Lets programs end with their launcher, and passes on their output although it may fail."""

import ctypes
import os
import signal
import threading

# Loaded before the fork: between fork and exec a child must not take locks, as loading does.
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Lets Linux kill this program when its launcher is gone, even by SIGKILL."""
    # A `preexec_fn` of `subprocess.Popen`, in a launcher's main thread: Linux goes by the thread.
    if hasattr(LIBC, "prctl"):  # of Linux alone
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Output:
    """The standard output of a launcher, on which it passes on its programs' lines.

    Attributes:
        is_closed: whether nobody reads the output any more.
        dropped: number of lines that could not be written.
    """

    def __init__(self) -> None:
        self.is_closed, self.dropped = False, 0
        self.lock = threading.Lock()  # a thread per program writes here

    def write(self, line: bytes) -> None:
        with self.lock:
            try:
                # A pipe may take a part of a line only.
                while line and not self.is_closed:
                    line = line[os.write(1, line) :]
            except OSError as error:
                self.is_closed = isinstance(error, BrokenPipeError)
                if self.is_closed:
                    say("nobody reads the output any more: ending the program")
                elif not self.dropped:
                    say(f"the output cannot be written, the program goes on: {error.strerror}")
                # A program blocks until its lines are read: on a full disk they are dropped, and
                # written again when there is room.
                self.dropped += 1

    def report(self) -> None:
        """Prints how many lines were dropped."""
        if self.dropped and not self.is_closed:
            say(f"{self.dropped} lines of output could not be written")


def say(line: str) -> None:
    try:
        os.write(2, f"[launch] {line}\n".encode())
    except OSError:
        return  # a closed or full stderr is no reason to end a training
