"""What launchers on one machine share: programs that end with them, and output that may fail."""

import ctypes
import os
import signal
import threading

LIBC = ctypes.CDLL(None)  # loaded before there is a child, which is not to load anything
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Lets Linux kill this program when its launcher is gone, even by SIGKILL.

    For `subprocess.Popen(preexec_fn=...)`, in a launcher's main thread.
    """
    if hasattr(LIBC, "prctl"):
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Output:
    """Standard output of a launcher, which passes on what programs say.

    Programs wait until what they say is read.  So a full disk stops nothing: lines are dropped,
    which stderr is told of once, and written again when there is room.

    Attributes:
        is_closed: nobody reads the output any more.
    """

    def __init__(self) -> None:
        self.is_closed, self.dropped = False, 0
        self.lock = threading.Lock()

    def write(self, line: bytes) -> None:
        """Writes a line, or drops it."""
        with self.lock:
            try:
                while line and not self.is_closed:
                    line = line[os.write(1, line) :]
            except OSError as error:
                self.is_closed = isinstance(error, BrokenPipeError)
                if self.is_closed:
                    say("nobody reads the output any more: ending the program")
                elif not self.dropped:
                    say(f"the output cannot be written, the program goes on: {error.strerror}")
                self.dropped += 1

    def report(self) -> None:
        """Says how many lines are missing."""
        if self.dropped and not self.is_closed:
            say(f"{self.dropped} lines of output could not be written")


def say(line: str) -> None:
    """Writes a line of the launcher's own to stderr, where there is one."""
    try:
        os.write(2, f"[launch] {line}\n".encode())
    except OSError:
        return
