"""A process whose heartbeat file changes no more is lost; nobody else is blamed."""

import threading

import pytest

from pretrain.distributed import lost_processes
from pretrain.distributed.lost_processes import Peers, may_follow_loss
from pretrain.runtime.errors import UserError


@pytest.fixture
def peers(tmp_path):
    """(process of three) -> its view, where two looks without a change are too many."""

    def peers(process: int) -> Peers:
        peers = Peers(tmp_path, process, 3, limit=2.0)
        peers.period = 1.0
        return peers

    return peers


def look(watcher: Peers, *living: Peers, times: int = 3) -> list[int]:
    """Whom a process misses after some looks, before each of which the living give a sign."""
    for _ in range(times):
        for process in living:
            process.write()
        lost = watcher.find_lost()
    return lost


def test_the_first_process_names_those_that_fall_silent(peers):
    first, second, third = (peers(number) for number in range(3))
    assert look(first, second, third) == []
    assert look(first, second, times=1) == []
    assert look(first, second) == [2]
    assert look(first) == [1, 2]


def test_the_others_watch_the_first_and_hear_from_it_who_is_lost(peers):
    first, second = peers(0), peers(1)
    assert look(second, first) == []
    first.write(lost=[2])
    assert second.find_lost() == [2]
    assert look(second, first, times=1) == []
    assert look(second) == [0]


def test_processes_that_start_up_or_have_ended_are_not_blamed(peers):
    earlier, second, third = peers(0), peers(1), peers(2)
    earlier.write(lost=[1])
    assert look(second) == []  # whom a run before this one has lost
    first = peers(0)
    third.write()  # of a run before, too; process 1 has never written
    assert look(first) == []
    assert look(first, second) == []
    second.write(has_ended=True)
    assert look(first) == []


def test_whoever_cannot_write_blames_nobody(peers, monkeypatch):
    first, second = peers(0), peers(1)
    assert look(first, second) == []
    blamed, ended = [], threading.Event()
    monkeypatch.setattr(first, "end_process", blamed.append)
    monkeypatch.setattr(lost_processes, "write_json", fail)
    first.period, first.limit = 0.001, 0.002
    threading.Timer(0.1, ended.set).start()
    first.watch(ended)
    assert not blamed


def fail(*_):
    raise OSError("no space left")


@pytest.mark.parametrize(
    ("error", "follows"),
    [
        (ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer"), True),
        (RuntimeError("INTERNAL: NCCL operation failed"), True),
        (OSError("No space left on device"), False),
        (UserError("mesh data=3 does not use all of 4 devices"), False),
        (KeyboardInterrupt(), False),
        (None, False),
    ],
)
def test_errors_that_a_lost_process_can_cause_are_told_apart(error, follows):
    assert may_follow_loss(error) == follows
    if error:
        wrapped = UserError("a checkpoint could not be written")
        wrapped.__cause__ = error
        assert may_follow_loss(wrapped) == follows
