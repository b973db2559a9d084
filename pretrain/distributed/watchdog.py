"""Tells a run that hangs from one that works: a sign of life, and the stacks of what hangs."""

import collections
import contextlib
import faulthandler
import math
import pathlib
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import jax

from pretrain.runtime.errors import UserError
from pretrain.runtime.json_files import read_json, write_json

SLOW = 20.0  # times the median
LEAST = 1.0  # seconds: a machine that hiccups does not hang
KNOWN = 3  # what took place so often has a median; the first time compiles


class Work(NamedTuple):
    """The present work of a process."""

    doing: str
    step: int
    since: float  # on the monotonic clock


class Watch:
    """Keeps `workdir/heartbeats/<process>.json`, and dumps all stacks of a process that hangs.

    Work that takes longer than 20 times the median of its kind is told of on stderr, and what
    every thread is at is added to `workdir/stacks/`.

    Attributes:
        began: when the run was started first, by the earlier lives' files; seconds since 1970.
    """

    def __init__(self, workdir, *, period: float = 10.0, look: float = 0.25):
        """Starts the thread; `look` is the seconds between two looks at the clock."""
        name, folder = str(jax.process_index()), pathlib.Path(workdir)
        self.file = folder / "heartbeats" / f"{name}.json"
        self.stacks = folder / "stacks" / f"{name}.txt"
        self.period, self.look = period, look
        self.seen: dict[str, collections.deque] = {}
        self.work = Work("starting", 0, time.monotonic())
        self.began = read_first_start(self.file, time.time())
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._follow, name="watch", daemon=True)
        self.thread.start()

    @contextlib.contextmanager
    def __call__(self, doing: str, step: int) -> Iterator[None]:
        """Times work of a kind, and compares it with the median of its kind."""
        began = time.monotonic()
        self.work = Work(doing, step, began)
        yield
        ended = time.monotonic()
        self.work = Work(f"after {doing}", step, ended)
        self.seen.setdefault(doing, collections.deque(maxlen=101)).append(
            ended - began
        )  # the last 101: work may change its pace

    def close(self) -> None:
        """Ends the thread, which writes once more."""
        self.ended.set()
        self.thread.join()

    def limit(self, doing: str) -> float:
        """Returns the seconds beyond which such work is slow."""
        seen = list(self.seen.get(doing, ()))
        return max(LEAST, SLOW * statistics.median(seen)) if len(seen) >= KNOWN else math.inf

    def _follow(self) -> None:
        latest, limit, written = None, math.inf, -math.inf
        self._clear()
        while not self.ended.wait(self.look):
            work, now = self.work, time.monotonic()
            if work is not latest:
                latest, limit = work, self.limit(work.doing)
            if now - work.since > limit:
                self._dump(work, now - work.since)
                # Doubled, so that a hang of a night does not fill the disk with stacks.
                limit = 2 * (now - work.since)
            if now - written > self.period:
                self._beat(work)
                written = now
        self._beat(self.work._replace(doing="ended"))

    def _clear(self) -> None:
        # Killed lives of the run have left half-written files.
        with contextlib.suppress(OSError):
            for draft in self.file.parent.glob(f".{self.file.name}.*.tmp"):
                draft.unlink()

    def _beat(self, work: Work) -> None:
        # Measured by the monotonic clock, written as time of day, which others can read.
        now, ago = time.time(), time.monotonic() - work.since
        # `time` says that the process lives, `since` that it gets on.
        what = {"step": work.step, "doing": work.doing, "since": now - ago, "time": now}
        with contextlib.suppress(OSError):  # a full disk is the run's to tell of
            write_json(self.file, {"began": self.began, **what})

    def _dump(self, work: Work, seconds: float) -> None:
        median = statistics.median(list(self.seen[work.doing]))
        text = f"step {work.step}: {work.doing} has taken {seconds:.3g} s, median {median:.2g} s"
        with contextlib.suppress(OSError):
            self.stacks.parent.mkdir(parents=True, exist_ok=True)
            with self.stacks.open("a") as file:
                print(f"\n{time.strftime('%F %T')}  {text}", file=file, flush=True)
                faulthandler.dump_traceback(file)
            where = f"process {jax.process_index()}: {text}; all stacks are in {self.stacks}"
            print(where, file=sys.stderr, flush=True)


def read_first_start(heartbeat: pathlib.Path, now: float) -> float:
    """Reads when the run was first started from its last sign of life; `now` without one."""
    try:
        return min(float(read_json(heartbeat)["began"]), now)
    except (UserError, KeyError, TypeError, ValueError):
        return now
