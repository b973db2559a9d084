"""Notices for the person at the terminal, and how far a long job is."""

import sys
import time

INTERVAL = 3.0  # seconds
_process, _processes = 0, 1  # told by `set_process`, as asking JAX would open its devices


def set_process(number: int, count: int) -> None:
    """Says which of the run's `count` processes this is, from 0."""
    global _process, _processes
    _process, _processes = number, count


def say(line: str, *, every_process: bool = False) -> None:
    """Prints a line to standard error, once for a run of several processes.

    Args:
        line: the notice, without a line end.
        every_process: the line concerns this process or the files of its host: every process
            prints its own, with its number if there are several.
    """
    if every_process and _processes > 1:
        line = f"process {_process}: {line}"
    if every_process or _process == 0:
        print(line, file=sys.stderr, flush=True)


class Progress:
    """Prints now and then how far a job is: `progress(mb, tokens)`, and `close` at its end."""

    def __init__(self, job: str):
        self.job, self.started, self.printed = job, time.monotonic(), time.monotonic()
        self.printed_tokens = -1

    def __call__(self, mb: float, tokens: int) -> None:
        if time.monotonic() - self.printed >= INTERVAL:
            self._print(mb, tokens, "\r" if sys.stderr.isatty() else "\n")

    def close(self, mb: float, tokens: int) -> None:
        """Prints the last line, unless the log has it already."""
        if tokens != self.printed_tokens or sys.stderr.isatty():
            self._print(mb, tokens, "\n")

    def _print(self, mb: float, tokens: int, end: str) -> None:
        # In every process that works: the one that prepares a corpus need not be the first.
        self.printed, self.printed_tokens = time.monotonic(), tokens
        speed = tokens / max(self.printed - self.started, 1e-9)
        line = f"{self.job}: {mb:,.0f} MB, {tokens:,} tokens, {speed:,.0f} tokens/s"
        print(line, end=end, file=sys.stderr, flush=True)
