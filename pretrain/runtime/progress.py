"""Notices for the person at the terminal, and how far a long job is."""

import sys
import time

INTERVAL = 3.0  # seconds
_process, _processes = 0, 1  # told by `set_process`, as asking JAX would open its devices


def set_process(number: int, count: int) -> None:
    """Says which of the run's `count` processes this is, from 0."""
    global _process, _processes
    _process, _processes = number, count


def say(line: str, *, every_process: bool = False, renew: bool = False) -> None:
    """Prints a line to standard error, once for a run of several processes.

    Args:
        line: the notice, without a line end.
        every_process: the line concerns this process or the files of its host: every process
            prints its own, with its number if there are several.
        renew: on a terminal the next line takes its place.
    """
    if every_process and _processes > 1:
        line = f"process {_process}: {line}"
    if every_process or _process == 0:
        # A log gets whole lines in the place of one that renews itself.
        is_live = sys.stderr.isatty()
        start, end = ("\r\x1b[K", "" if renew else "\n") if is_live else ("", "\n")
        print(f"{start}{line}", end=end, file=sys.stderr, flush=True)


class Progress:
    """Prints now and then how far a job is and how long it will take, and `close` at its end.

    Attributes:
        seconds: that the job has taken.
    """

    def __init__(self, job: str, total: float = 0.0, *, every_process: bool = False):
        """
        Args:
            job: begins the line; "": nothing does.
            total: of the job's units; 0: it is not known.
            every_process: see `say`.
        """
        self.job, self.total, self.every_process = job, total, every_process
        self.started = self.printed = time.monotonic()
        self.first: tuple[float, float] | None = None  # when, and how much was done by then
        self.last = ""

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.started, 1e-9)

    def __call__(self, done: float, text: str) -> None:
        """Prints `text`, and the time left after so many units, unless it did so a moment ago."""
        now = time.monotonic()
        if self.first is None:  # before it something was compiled, or was there already
            self.first, self.printed = (now, done), now
        if now - self.printed < INTERVAL:
            return
        self.printed, self.last = now, text
        began, before = self.first
        seconds = (now - began) * max(self.total - done, 0) / max(done - before, 1e-9)
        left = [f"{format_clock(seconds)} left"] * bool(self.total and done > before)
        self._print("  ".join([text, *left]), renew=True)

    def close(self, text: str) -> None:
        """Prints the last line, unless the log has it already."""
        if text != self.last or sys.stderr.isatty():
            self._print(text)

    def _print(self, text: str, renew: bool = False) -> None:
        line = ": ".join(filter(None, [self.job, text]))
        say(line, every_process=self.every_process, renew=renew)


def format_count(x: float) -> str:
    """Formats a number by its size, as 12.3k."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if x >= size:
            return f"{x / size:.1f}{letter}"
    return f"{x:.0f}"


def format_clock(seconds: float) -> str:
    """Formats a time, as 7:05 or 1:03:20."""
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
