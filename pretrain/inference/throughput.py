"""Measures tokens per second while embedding."""

import contextlib
import time
from collections.abc import Iterator

from pretrain.inference.embedding_inputs import Sentence


class Speed:
    """Counts sentences and words, and the time that they took besides compiling."""

    def __init__(self):
        self.sentences = self.words = 0
        self.compiling, self._start = 0.0, time.perf_counter()

    def add(self, sentence: Sentence) -> None:
        self.sentences += 1
        self.words += sentence.words

    @contextlib.contextmanager
    def exclude_compiling(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.compiling += time.perf_counter() - start

    def __str__(self) -> str:
        seconds = max(time.perf_counter() - self._start - self.compiling, 1e-9)
        return (
            f"{self.sentences:,} sentences, {self.words:,} words: "
            f"{self.sentences / seconds:,.0f} sentences/s, {self.words / seconds:,.0f} words/s"
        )
