"""pretrain/machine.py: being asked to stop."""

import os
import signal

from pretrain import machine


def test_the_first_interrupt_asks_to_stop_and_the_second_interrupts(monkeypatch):
    sent = []
    monkeypatch.setattr(os, "kill", lambda pid, signum: sent.append((pid, signum)))
    before = signal.getsignal(signal.SIGINT)
    try:
        machine._terminate(signal.SIGINT, None)
        assert sent == [(os.getpid(), signal.SIGTERM)]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_process_that_joined_nothing_is_never_asked_to_stop():
    stop = machine.Stop()
    assert not any(stop() for _ in range(3))
