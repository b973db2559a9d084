"""A contender in a process of its own: it builds, warms up, then runs steps when it is told to.

The first line of its input is a JSON object of settings, every further line a number of steps;
each is answered by one line of JSON.  Only the standard library is used here, so that a contender
may live under another Python.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

WARM_UP = 3  # steps


class Contender(Protocol):
    """One thing to be timed.

    Attributes:
        facts: what the report wants to know of it, as JSON.
    """

    facts: dict[str, Any]

    def step(self) -> Any:
        """Starts one step; returns something `loss` can read later."""

    def finish(self) -> None:
        """Returns when every step started is done."""

    def loss(self, begun: Any) -> float | None:
        """The loss of a finished step; None where there is none."""

    def peak_bytes(self) -> int:
        """The most memory held so far: of the device, or of this process on a CPU."""


def serve(build: Callable[[dict[str, Any]], Contender]) -> None:
    """Builds the contender that the settings ask for and runs it until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers

    def answer(values: dict[str, Any]) -> None:
        print(json.dumps(values), file=answers, flush=True)

    try:
        contender = build(json.loads(sys.stdin.readline()))
        first, warm = timed(contender, 1), timed(contender, WARM_UP)
    except Exception as error:
        answer({"error": f"{type(error).__name__}: {error}"})
        raise
    answer({**contender.facts, "first": first, "warm": warm})
    for line in sys.stdin:
        answer(timed(contender, int(line)))


def timed(contender: Contender, steps: int) -> dict[str, Any]:
    """Seconds per step by the wall and by the process's CPUs, losses, and the memory peak."""
    wall, cpu = time.perf_counter(), time.process_time()
    begun = [contender.step() for _ in range(steps)]
    contender.finish()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "wall": wall / steps,
        "cpu": cpu / steps,
        "losses": [contender.loss(x) for x in begun],
        "peak_bytes": contender.peak_bytes(),
    }


def resident_peak() -> int:
    """The most bytes this process ever held in memory."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0
