"""Notices are printed once for a run, unless they concern one process."""

import sys

import pytest

from pretrain.runtime import progress


@pytest.fixture
def process():
    """Sets which process this is, until the end of the test."""
    yield progress.set_process
    progress.set_process(0, 1)


@pytest.mark.parametrize(
    ("number", "count", "every_process", "printed"),
    [
        (0, 1, False, "a\n"),
        (0, 1, True, "a\n"),
        (0, 3, False, "a\n"),
        (2, 3, False, ""),
        (2, 3, True, "process 2: a\n"),
    ],
)
def test_a_notice_is_printed_by_whom_it_concerns(
    process, capsys, number, count, every_process, printed
):
    process(number, count)
    progress.say("a", every_process=every_process)
    assert capsys.readouterr().err == printed


@pytest.mark.parametrize("interval", [0, 99])
def test_the_last_line_tells_all_that_was_done_once(capsys, monkeypatch, interval):
    monkeypatch.setattr(progress, "INTERVAL", interval)
    shown = progress.Progress("tokenising")
    shown(2, "2 MB")
    shown.close("2 MB")
    assert capsys.readouterr().err == "tokenising: 2 MB\n"


def test_the_time_left_is_by_the_pace_since_the_first_notice(capsys, monkeypatch):
    clock = iter([0.0, 100.0, 110.0])  # begun, compiled, and ten units later
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    shown = progress.Progress("embedding", 75)
    shown(5, "5 sentences")
    shown(15, "15 sentences")
    assert capsys.readouterr().err == "embedding: 15 sentences  1:00 left\n"


def test_on_a_terminal_a_line_may_renew_itself(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress.say("step 1", renew=True)
    progress.say("done")
    assert capsys.readouterr().err == "\r\x1b[Kstep 1\r\x1b[Kdone\n"
