"""How far a long job is: one line every few seconds, rewritten in place on a terminal."""

import sys
import time

EVERY = 3.0  # seconds


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Progress:
    """`progress(mb, tokens)` as often as you like; it prints now and then, and `close` at last."""

    def __init__(self, job: str):
        self.job, self.started, self.printed = job, time.monotonic(), time.monotonic()

    def __call__(self, mb: float, tokens: int) -> None:
        if time.monotonic() - self.printed >= EVERY:
            self._print(mb, tokens, "\r" if sys.stderr.isatty() else "\n")

    def close(self, mb: float, tokens: int) -> None:
        self._print(mb, tokens, "\n")

    def _print(self, mb: float, tokens: int, end: str) -> None:
        self.printed = time.monotonic()
        speed = tokens / max(self.printed - self.started, 1e-9)
        line = f"{self.job}: {mb:,.0f} MB, {tokens:,} tokens, {speed:,.0f} tokens/s"
        print(line, end=end, file=sys.stderr, flush=True)
