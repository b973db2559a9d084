"""Notices are printed once for a run, unless they concern one process."""

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
    shown(2, 1_000)
    shown.close(2, 1_000)
    printed = capsys.readouterr().err
    assert printed.startswith("tokenising: 2 MB, 1,000 tokens, ")
    assert printed.count("\n") == 1
