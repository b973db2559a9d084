"""Serves a contender in a process of its own: builds it, warms it up, runs steps on request.

The first line of its input is a JSON object of settings, every further line a number of steps,
perhaps with the folder for their profile; each is answered by one line of JSON.
"""

import contextlib
import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

# The standard library alone: a contender may run under another Python.
WARM_UP = 3  # steps


class Contender(Protocol):
    """A step that is measured beside others.

    Attributes:
        facts: its figures for the report, as JSON.
    """

    facts: dict[str, Any]

    def step(self) -> Any:
        """Starts one step; returns a value that `loss` can read later."""

    def finish(self) -> None:
        """Waits until all started steps are done."""

    def loss(self, result: Any) -> float | None:
        """Returns the loss of a finished step; None where there is none."""

    def peak_bytes(self) -> int:
        """Returns the peak of the device's memory, or of this process on a CPU."""

    def profile(self, folder: str) -> contextlib.AbstractContextManager:
        """Keeps a profile of what runs meanwhile in a folder."""


def serve(build: Callable[[dict[str, Any]], Contender]) -> None:
    """Builds the contender of the settings and runs it until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not mix with the answers

    def answer(values: dict[str, Any]) -> None:
        print(json.dumps(values), file=answers, flush=True)

    try:
        contender = build(json.loads(sys.stdin.readline()))
        first, warm = time_steps(contender, 1), time_steps(contender, WARM_UP)
    except Exception as error:  # the launcher prints the line, stderr has the traceback
        answer({"error": f"{type(error).__name__}: {error}"})
        raise
    answer({**contender.facts, "first": first, "warm": warm})
    for line in sys.stdin:
        steps, _, folder = line.strip().partition(" ")
        with contender.profile(folder) if folder else contextlib.nullcontext():
            figures = time_steps(contender, int(steps))
        answer(figures)


def time_steps(contender: Contender, steps: int) -> dict[str, Any]:
    """Measures seconds per step by the wall clock and by CPU time, losses and the memory peak."""
    wall, cpu = time.perf_counter(), time.process_time()
    # One wait for all: steps are dispatched ahead, as in training.
    results = [contender.step() for _ in range(steps)]
    contender.finish()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "wall": wall / steps,
        "cpu": cpu / steps,
        "losses": [contender.loss(x) for x in results],
        "peak_bytes": contender.peak_bytes(),
    }


def resident_peak() -> int:
    """Returns the peak of this process's memory in bytes."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(match[1]) * 1024 if match else 0
