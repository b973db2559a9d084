"""Errors of work that Orbax has left behind are not printed, and all others are."""

import sys
from types import SimpleNamespace

import pytest

from pretrain.checkpoint import abandoned_work


@pytest.mark.parametrize(
    ("error", "is_said"),
    [
        (RuntimeError("Event loop is closed"), False),
        (RuntimeError("no room"), True),
        (OSError("Event loop is closed"), True),
    ],
)
def test_only_a_closed_event_loop_is_kept_quiet(monkeypatch, error, is_said):
    said = []
    monkeypatch.setattr(sys, "excepthook", lambda *of: said.append(of[1]))
    monkeypatch.setattr(sys, "unraisablehook", lambda of: said.append(of.exc_value))
    abandoned_work.silence_tracebacks.__wrapped__()
    sys.excepthook(type(error), error, None)
    sys.unraisablehook(SimpleNamespace(object=None, exc_value=error))
    assert said == [error] * 2 * is_said
