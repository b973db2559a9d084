"""Runs contenders in turns, each in a process of its own, on the same number of threads."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from launch.programs import end_with_parent
from pretrain.runtime.errors import UserError

ROOT = Path(__file__).parents[2]
# The settings of glibc that `pretrain.runtime.malloc.keep_memory` makes in our process: without
# them a peer would return its memory in every step and fault it in again.
KEEP_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TOP_PAD_": str(2**26),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}


class Player:
    """The process of a contender, which runs `benchmarks.contest.worker`.

    Attributes:
        facts: the contender's own, with the figures of its `first` and its `warm` steps.
        rounds: the figures of each round, see `worker.time_steps`.
        is_stopped: its time was over before it was done.
    """

    def __init__(
        self,
        name: str,
        module: str,
        settings: dict[str, Any],
        python: str = sys.executable,
        keep_memory: bool = False,
        seconds: float = 0,
    ):
        """Starts the process; returns when the contender is built and warm.

        Args:
            keep_memory: whether the process keeps freed memory; ours arranges that itself.
            seconds: after which the process is stopped, whatever it does; 0: it is not.

        Raises:
            UserError: the contender could not be built, or was stopped.
        """
        threads = str(settings["threads"])
        # OpenMP's, PyTorch's and XLA's pools.
        pools = dict.fromkeys(("OMP_NUM_THREADS", "NPROC", "PJRT_NPROC"), threads)
        env = os.environ | pools | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        env |= KEEP_MEMORY if keep_memory else {}
        self.name, self.rounds, self.is_stopped = name, list[dict[str, Any]](), False
        try:
            self.process = subprocess.Popen(
                [python, "-m", module],
                cwd=ROOT,
                env=env,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # A killed launcher would leave it on the card, beside the next contender.
                preexec_fn=end_with_parent,
            )
        except OSError as error:
            raise UserError(f"{name}: {python} does not start: {error.strerror}") from error
        self.timer = threading.Timer(seconds, self._stop)
        if seconds:
            self.timer.start()
        self.facts = self._ask(json.dumps(settings))

    def run(self, steps: int) -> None:
        self.rounds.append(self._ask(str(steps)))

    def profile(self, steps: int, folder: Path) -> None:
        """Runs steps that count for nothing, and keeps their profile in a folder."""
        self._ask(f"{steps} {folder.absolute()}")

    def close(self) -> None:
        self.timer.cancel()
        # Killed: there is nothing to save.
        self.process.kill()
        self.process.communicate()

    def _stop(self) -> None:
        self.is_stopped = True
        self.process.kill()

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        try:
            print(line, file=self.process.stdin, flush=True)
            answer = json.loads(self.process.stdout.readline() or "{}")
        except BrokenPipeError:  # it has ended; its traceback is on stderr
            answer = {}
        if "wall" in answer or "first" in answer:
            return answer
        self.close()
        ended = "its time was over" if self.is_stopped else "its process ended, see above"
        raise UserError(f"{self.name}: {answer.get('error', ended)}")


def play(players: list[Player], rounds: int, steps: int) -> None:
    # In the order ABC CBA ABC ...: a slow minute then slows all of them down.
    for turn in range(rounds):
        for player in players[:: -1 if turn % 2 else 1]:
            player.run(steps)


def run_job(module: str, description: Path, python: str, threads: int) -> None:
    """Runs a module of PyTorch's on the description of a job, in a process of its own.

    Raises:
        UserError: it failed.
    """
    pools = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    command = [python, "-m", module, str(description)]
    try:
        done = subprocess.run(command, cwd=ROOT, env=os.environ | pools | KEEP_MEMORY)
    except OSError as error:
        raise UserError(f"{python} does not start: {error.strerror}") from error
    if done.returncode:
        raise UserError(f"{module} ended with {done.returncode}, see above")
