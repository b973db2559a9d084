"""Contenders take turns, and one that cannot be built says why."""

from types import SimpleNamespace

import pytest

from benchmarks.contest import runner
from pretrain.runtime.errors import UserError


def test_contenders_take_turns_there_and_back():
    order = []
    players = [SimpleNamespace(run=lambda steps, name=name: order.append(name)) for name in "ABC"]
    runner.play(players, rounds=3, steps=1)
    assert "".join(order) == "ABCCBAABC"


def test_a_contender_that_cannot_be_built_says_why():
    with pytest.raises(UserError, match="ours: KeyError: 'recipe'"):
        runner.Player("ours", "benchmarks.contest.ours", {"threads": 1})
    with pytest.raises(UserError, match="no-such-python does not start"):
        runner.Player("peer", "benchmarks.peers.xlnet", {"threads": 1}, "no-such-python")


def test_a_contender_is_stopped_when_its_time_is_over():
    with pytest.raises(UserError, match="matmul: its time was over"):
        runner.Player("matmul", "benchmarks.contest.matmul", {"threads": 1}, seconds=0.01)
