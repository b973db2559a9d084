"""Contenders taking turns, each in a process of its own and all on the same number of threads."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pretrain.runtime.errors import UserError

ROOT = Path(__file__).parents[2]
KEEP_MEMORY = {  # asks of glibc what `pretrain.runtime.malloc.keep_memory` does
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TOP_PAD_": str(2**26),
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}


class Player:
    """A running `benchmarks.contest.worker`.

    Attributes:
        facts: what it says of itself, with its `first` and its `warm` steps.
        rounds: what it measured in each round, see `worker.timed`.
    """

    def __init__(
        self,
        name: str,
        module: str,
        settings: dict[str, Any],
        python: str = sys.executable,
        keep_memory: bool = False,
    ):
        """Returns when it is built and warm.

        Args:
            keep_memory: the process keeps what it frees; ours sees to that itself.

        Raises:
            UserError: it could not be built.
        """
        threads = str(settings["threads"])
        same = dict.fromkeys(("OMP_NUM_THREADS", "NPROC", "PJRT_NPROC"), threads)
        env = os.environ | same | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        env |= KEEP_MEMORY if keep_memory else {}
        self.name, self.rounds = name, list[dict[str, Any]]()
        try:
            self.process = subprocess.Popen(
                [python, "-m", module],
                cwd=ROOT,
                env=env,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
        except OSError as error:
            raise UserError(f"{name}: {python} does not start: {error.strerror}") from error
        self.facts = self._ask(json.dumps(settings))

    def run(self, steps: int) -> None:
        """One round."""
        self.rounds.append(self._ask(str(steps)))

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        try:
            print(line, file=self.process.stdin, flush=True)
            answer = json.loads(self.process.stdout.readline() or "{}")
        except BrokenPipeError:
            answer = {}
        if "wall" in answer or "first" in answer:
            return answer
        self.close()
        raise UserError(f"{self.name}: {answer.get('error', 'its process ended, see above')}")


def play(players: list[Player], rounds: int, steps: int) -> None:
    """ABC CBA ABC ...: what slows the machine down for a while slows all of them down."""
    for turn in range(rounds):
        for player in players[:: -1 if turn % 2 else 1]:
            player.run(steps)
