"""Traces of chosen steps, to be looked at with xprof."""

import contextlib
import pathlib
import re
from collections.abc import Iterator
from contextlib import nullcontext

import jax

from pretrain.runtime.errors import UserError


class Profile:
    """Traces chosen steps into `workdir/profile`, for xprof; in the first process only."""

    def __init__(self, steps: str, workdir, last: int):
        """
        Args:
            steps: "100-104" or "100-104,5000-5004", first and last of each; "": none.
            last: step of the run.
        """
        self.folder = str(pathlib.Path(workdir) / "profile")
        mine = jax.process_index() == 0
        self.ends = dict(_parse_ranges(steps, last)) if mine else {}
        self.end: int | None = None  # of the trace in progress

    @contextlib.contextmanager
    def __call__(self, step: int) -> Iterator[None]:
        """Traces a chosen step."""
        if step in self.ends:
            self._begin(step)
        chosen = self.end is not None and step <= self.end
        with jax.profiler.StepTraceAnnotation("train", step_num=step) if chosen else nullcontext():
            yield
        if not chosen:  # by now the devices are done with the last one that was
            self.close()

    def _begin(self, step: int) -> None:
        self.end = self.ends[step]
        options = jax.profiler.ProfileOptions()
        options.session_id = f"steps-{step}-{self.end}"
        jax.profiler.start_trace(self.folder, profiler_options=options)

    def close(self) -> None:
        if self.end is not None:
            self.end = None
            jax.profiler.stop_trace()


def _parse_ranges(steps: str, last: int) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for part in filter(None, steps.replace(" ", "").split(",")):
        if not (match := re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)):
            raise UserError(f"profile={steps!r}: steps are given as 100-104 or 100-104,5000-5004")
        ranges.append((int(match[1]), int(match[2] or match[1])))
        begin = ranges[-2][1] + 2 if len(ranges) > 1 else 1  # the step between ends the trace
        if not begin <= ranges[-1][0] <= ranges[-1][1] <= last:
            raise UserError(f"profile={steps!r}: {part} is not within steps {begin} to {last}")
    return ranges
