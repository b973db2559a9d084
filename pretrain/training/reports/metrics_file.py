"""Writes the metrics of a run to metrics.jsonl and to trackers, and reads them back."""

import contextlib
import json
import math
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from pretrain.runtime.errors import UserError
from pretrain.runtime.files import write_file
from pretrain.runtime.progress import say
from pretrain.training.metrics import NORMS
from pretrain.training.reports.totals import Totals


class Writer:
    """A run's numbers: metrics.jsonl and the trackers, from the first process only."""

    def __init__(
        self,
        workdir,
        step: int,
        trackers: Mapping[str, Any] = MappingProxyType({}),
        totals: Totals | None = None,
    ):
        """Opens the file.

        Args:
            step: of the state that the run begins with.
            trackers: by name, see `reports.trackers`; they are closed here.
            totals: are written with every line; None: are not.

        Raises:
            UserError: the file cannot be read and written.
        """
        self.first, self.totals, self.trackers = jax.process_index() == 0, totals, dict(trackers)
        if not self.first:
            return
        self.path = pathlib.Path(workdir, "metrics.jsonl")
        # Steps of an earlier life beyond the restored one are trained, and written, again.
        self._keep_lines(lambda line: line["step"] <= step)

    def forget_evaluation(self, step: int) -> None:
        """Removes the line of the evaluation at `step`, the latest: it is repeated."""
        if self.first:
            self._keep_lines(lambda x: x["step"] < step or not is_evaluation(x))

    def _keep_lines(self, is_kept: Callable[[dict], bool]) -> None:
        lines = filter(is_kept, read_lines(self.path))
        with _report_write_errors(self.path):
            write_file(self.path, "".join(json.dumps(line) + "\n" for line in lines).encode())

    def write(self, step: int, **values: Any) -> None:
        """Writes a line; numbers that are not finite become null, as JSON has no other word."""
        if not self.first:
            return
        totals = self.totals.state_dict() if self.totals else {}
        line = {"step": step} | {k: to_json(v) for k, v in {**values, **totals}.items()}
        # Opened anew each time: a killed process leaves no line in a buffer.
        with _report_write_errors(self.path), self.path.open("a") as f:
            f.write(json.dumps(line) + "\n")
        # Totals are the only whole numbers that are worth a curve.
        numbers = {k: float(x) for k, x in line.items() if k in totals or isinstance(x, float)}
        self._call_trackers(lambda tracker: tracker.add(step, numbers))

    def flush(self) -> None:
        """Puts on disk what was written: a checkpoint counts it as done for good."""
        if not self.first:
            return
        self._call_trackers(lambda tracker: tracker.flush())
        with _report_write_errors(self.path):
            # Synced, as the checkpoint is: else a lost machine may keep a step without its line.
            if self.path.exists():
                with self.path.open("rb") as f:
                    os.fsync(f.fileno())

    def close(self) -> None:
        """Writes what trackers lack; never raises, which would hide why a run ended."""
        for name, tracker in self.trackers.items():
            try:
                tracker.close()
            except Exception as error:
                why = error.strerror if isinstance(error, OSError) else error
                say(f"{self.path.parent}: {name} lacks the last points: {why}")

    def _call_trackers(self, call: Callable[[Any], None]) -> None:
        for name, tracker in list(self.trackers.items()):
            try:
                with _report_write_errors(self.path):
                    call(tracker)
            # Another's service may raise anything, and training is worth more.
            except Exception as error:
                if not tracker.is_remote:
                    raise
                say(f"{name} fails, and the run goes on without it: {error}")
                del self.trackers[name]


@contextlib.contextmanager
def _report_write_errors(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {error.filename or path}: {error.strerror}") from error


def to_json(value: Any) -> Any:
    """Rounds a number to 7 digits; None where it is not finite, which JSON cannot say."""
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    return value


def read_lines(path) -> list[dict]:
    """Reads the lines of a metrics file, each with its "step"; damaged ones are left out.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        *whole, rest = pathlib.Path(path).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    lines = {number: _parse_line(text) for number, text in enumerate(whole, 1) if text}
    # A last line that a crash has cut short goes unnamed.
    if damaged := [str(number) for number, line in lines.items() if line is None]:
        numbers = ", ".join(damaged[:9]) + ", ..." * (len(damaged) > 9)
        print(f"{path}: damaged lines are left out: {numbers}", file=sys.stderr)
    return [line for line in [*lines.values(), _parse_line(rest)] if line is not None]


def _parse_line(text: bytes) -> dict | None:
    """Parses a line of a metrics file; None: it is damaged."""
    try:
        line = json.loads(text)
        # Beyond 2^53 a reader that knows floats only would confuse steps.
        steps = type(line["step"]) is int and 0 <= line["step"] < 1 << 53
        sound = steps and all(math.isfinite(x) for x in line.values() if is_number(x))
        return line if sound else None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


def is_evaluation(line: dict) -> bool:
    # The norms of training have a "/", too.
    return any("/" in name and not name.startswith(NORMS) for name in line)


def is_number(x: Any) -> bool:
    return type(x) in (int, float)  # no bool, which is an int to `isinstance`


def select_series(lines: list[dict], name: str) -> tuple[list[int], list[float]]:
    """Returns steps and values of the lines that have a number of this name."""
    points = [(line["step"], line[name]) for line in lines if is_number(line.get(name))]
    return [step for step, _ in points], [value for _, value in points]
