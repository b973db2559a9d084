"""Notices that another process of the run is lost, names it, and ends this one with code 75."""

import contextlib
import json
import math
import os
import pathlib
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

import jax

from pretrain.runtime.addresses import remove_credentials
from pretrain.runtime.errors import TRY_AGAIN, UserError
from pretrain.runtime.json_files import write_json

AGAIN = "start the run again and it goes on from its last checkpoint"


class Peers:
    """The other processes of a run: each lives as long as `heartbeats/<process>.alive` changes."""

    def __init__(self, workdir, process: int, count: int, limit: float):
        """Begins with no process seen alive, so that none that is starting up is blamed.

        Args:
            workdir: the folder of the run, which all processes share.
            process: number of this process, from 0.
            count: number of processes.
            limit: seconds without a change after which a process counts as lost.
        """
        self.folder = pathlib.Path(workdir, "heartbeats")
        self.process, self.count, self.limit = process, count, limit
        self.period = min(10.0, limit / 6)
        # Process 0 reads all files and writes into its own who is lost, the others read that one:
        # if all read all, a pod of 500 hosts would read 250,000 files a period.
        self.watched = range(1, count) if process == 0 else range(1)
        self.contents: dict[int, dict] = {}
        self.unchanged: dict[int, int] = {}  # looks in a row, of processes that were seen alive

    def write(self, lost: Iterable[int] = (), has_ended: bool = False) -> None:
        """Changes this process's own file; raises OSError if it cannot be written."""
        content = {"time": time.time(), "lost": [*lost], "has_ended": has_ended}
        write_json(self.folder / f"{self.process}.alive", content)

    def find_lost(self) -> list[int]:
        """Looks at the files once more and returns the numbers of the processes that are lost."""
        lost: set[int] = set()
        for number in self.watched:
            with contextlib.suppress(FileNotFoundError, ValueError):
                # Read, not asked for its time: NFS may answer that from a cache of a minute.  Nor
                # is the time within compared with a clock, as those of two machines differ.
                content = json.loads((self.folder / f"{number}.alive").read_text())
                if content != self.contents.setdefault(number, content):  # not an earlier life's
                    self.unchanged[number] = 0
                    lost |= {*content["lost"]}
                elif number in self.unchanged and not content["has_ended"]:
                    self.unchanged[number] += 1
                self.contents[number] = content
        # Looks are counted, not seconds: when this process itself was stopped for an hour, the
        # others are not to blame.
        looks = math.ceil(self.limit / self.period)
        return sorted(lost | {number for number, n in self.unchanged.items() if n >= looks})

    def watch(self, ended: threading.Event) -> None:
        """Gives signs of life until the work has `ended`, or ends the process if one is lost."""
        while not ended.is_set():
            try:
                self.write()
                if lost := self.find_lost():
                    self.end_process(lost)
            except OSError:
                self.unchanged.clear()  # what fails here may fail the others, who are not to blame
            ended.wait(self.period)
        with contextlib.suppress(OSError):
            self.write(has_ended=True)

    def end_process(self, lost: Sequence[int]) -> NoReturn:
        """Prints who is lost, and ends this process."""
        if self.process == 0:
            self.write(lost)
            # The others read this before they lose process 0, of which JAX would abort them.
            time.sleep(1.5 * self.period + 1)
        names = ", ".join(map(str, lost))
        one, was = ("process", "was") if len(lost) == 1 else ("processes", "were")
        why = f"no sign of life for {self.limit:g} s; what was printed there last may tell why"
        with contextlib.suppress(OSError):  # nobody may read stderr any more
            os.write(
                2, f"error: {one} {names} of {self.count} {was} lost ({why}): {AGAIN}\n".encode()
            )
        os._exit(TRY_AGAIN)  # an orderly end would wait for the lost one


@contextlib.contextmanager
def watch_peers(workdir, limit: float) -> Iterator[None]:
    """Ends this process with a line when another one of the run is lost inside of the block.

    Args:
        workdir: the folder of the run.
        limit: seconds without a sign of life after which a process counts as lost.
    """
    if jax.process_count() == 1:
        yield
        return
    peers, ended = (
        Peers(workdir, jax.process_index(), jax.process_count(), limit),
        threading.Event(),
    )
    thread = threading.Thread(target=peers.watch, args=(ended,), daemon=True)
    thread.start()
    yield
    # Not in a `finally`: where the block raises, the error may follow from a loss, see `end`.
    ended.set()
    thread.join()


# Seconds after which JAX aborts this process for the loss of another, as it does when process 0 is
# gone: by SIGABRT, which `launch.attempt` and `launch.local` turn into exit code 75.  0: alone.
_jax_limit = 0.0


def expect_peers(jax_limit: float) -> None:
    """Says that this process is one of several, which JAX aborts `jax_limit` s after a loss."""
    global _jax_limit
    _jax_limit = jax_limit


def is_multiprocess() -> bool:
    return _jax_limit > 0


def end(code: int, message: str, error: BaseException | None = None) -> NoReturn:
    """Ends this process with a message; the others will notice, or have ended before."""
    message = remove_credentials(message)  # those of the addresses in it, a traceback's too
    if not is_multiprocess():
        print(message, file=sys.stderr)
        sys.exit(code)
    if may_follow_loss(error):
        # An error that follows from a loss is not printed in full: the watch, or JAX, ends this
        # process before the wait is over.
        wait = _jax_limit + 10
        reason = remove_credentials(f"{type(error).__name__}: {error}".splitlines()[0])
        notice = f"failed ({reason}); looking for {wait:g} s whether a process is lost"
        print(notice, file=sys.stderr, flush=True)
        time.sleep(wait)
    print(message, file=sys.stderr, flush=True)
    os._exit(code)


def may_follow_loss(error: BaseException | None) -> bool:
    """Returns whether an error may be that of a collective, which has no type of its own."""
    while isinstance(error, UserError):
        error = error.__cause__
    return isinstance(error, Exception) and not isinstance(error, OSError)
