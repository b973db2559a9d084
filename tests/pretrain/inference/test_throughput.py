"""Speed counts sentences, words, and the time besides compiling."""

import time

import numpy as np

from pretrain.inference.embedding_inputs import Sentence
from pretrain.inference.throughput import Speed


def test_time_of_compiling_does_not_count(monkeypatch):
    clock = iter([0.0, 10.0, 60.0, 52.0])  # begun, compiling from and to, asked
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    speed = Speed()
    with speed.exclude_compiling():
        pass
    for number in range(4):
        speed.add(Sentence(number, ["a", "b"], np.zeros((2, 1)), 2, 0))
    assert str(speed) == "4 sentences, 8 words: 2 sentences/s, 4 words/s"
