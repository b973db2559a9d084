"""The allocator is tuned on a CPU alone."""

import ctypes
import importlib.util
import sys
from types import SimpleNamespace

import pytest

from pretrain.runtime import malloc


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's options")
@pytest.mark.parametrize(
    ("platforms", "has_plugin", "is_tuned"),
    [("cpu", True, True), ("", False, True), ("", True, False), ("cuda", True, False)],
)
def test_an_accelerator_leaves_the_allocator_as_it_is(monkeypatch, platforms, has_plugin, is_tuned):
    calls = []
    libc = SimpleNamespace(mallopt=lambda *option: calls.append(option))
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: has_plugin or None)
    monkeypatch.setenv("JAX_PLATFORMS", platforms)
    malloc.keep_memory()
    assert bool(calls) == is_tuned
