"""Tokenises the parts of a corpus in several processes, to the same files as one process does."""

import collections
import concurrent.futures
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pretrain.data.corpus import writer
from pretrain.data.corpus.sentences import Piece
from pretrain.data.tokenizers import registry
from pretrain.runtime.errors import UserError

AHEAD = 2  # parts for each process that are in memory: one that it works on, and the next

_given: tuple[Any, ...] = ()  # of a worker: its tokenizer, and what closes pieces


class PartPool:
    """Processes that tokenise parts, some at a time.

    They are begun anew rather than forked, as the caller may have threads, and end with the caller
    however that ends.
    """

    def __init__(self, folder: Path, paragraphs: bool, processes: int):
        """
        Args:
            folder: of the tokenizer, which each process loads.
            paragraphs: see `writer.closing_tokens`.
        """
        self.most = AHEAD * processes
        self.waiting: collections.deque[concurrent.futures.Future[int]] = collections.deque()
        self.executor = concurrent.futures.ProcessPoolExecutor(
            processes, multiprocessing.get_context("spawn"), _begin, (folder, paragraphs)
        )

    def write_part(self, path: Path, part: list[Piece], first: bool) -> int:
        """Has a part written; returns the tokens of those that were finished meanwhile.

        Raises:
            UserError: see `finish`.
        """
        tokens = self.finish(self.most - 1)
        with _explain_loss():
            self.waiting.append(self.executor.submit(_write_part, path, part, first))
        return tokens

    def finish(self, rest: int = 0) -> int:
        """Waits until no more than `rest` parts are unfinished; returns the tokens of the others.

        Raises:
            UserError: a process was ended by somebody.
            OSError: a part could not be written.
        """
        tokens = 0
        with _explain_loss():
            while len(self.waiting) > rest:
                tokens += self.waiting.popleft().result()
        return tokens

    def close(self) -> None:
        self.executor.shutdown(cancel_futures=True)


@contextlib.contextmanager
def open_pool(folder: Path, paragraphs: bool, processes: int) -> Iterator[PartPool | None]:
    """Opens a pool of several processes; one is the caller's own, which needs none."""
    if processes < 2:
        yield None
        return
    with contextlib.closing(PartPool(folder, paragraphs, processes)) as pool:
        yield pool


@contextlib.contextmanager
def _explain_loss() -> Iterator[None]:
    try:
        yield
    except concurrent.futures.BrokenExecutor as error:
        raise UserError(
            "a process that tokenises was ended, perhaps for want of memory: the same command goes "
            "on from the parts there are; fewer --processes take less"
        ) from error


def _begin(folder: Path, paragraphs: bool) -> None:
    """Prepares a worker: its tokenizer, one thread, and its end."""
    global _given
    # Ctrl-C is the caller's to hear, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_caller, daemon=True).start()
    # The processes are as many as are wanted: the libraries' threads would only get in their way.
    os.environ["RAYON_NUM_THREADS"] = "1"
    tokenizer = registry.load(folder)
    _given = tokenizer, writer.closing_tokens(tokenizer, paragraphs)


def _end_with_caller() -> None:
    caller = multiprocessing.parent_process()
    assert caller is not None
    multiprocessing.connection.wait([caller.sentinel])
    os._exit(1)


def _write_part(path: Path, part: list[Piece], first: bool) -> int:
    return writer.write_part(path, part, first, *_given)
