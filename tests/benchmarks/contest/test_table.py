"""Ratios are taken within rounds."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.contest import table


def test_a_round_that_slows_everyone_does_not_move_the_ratio():
    load = np.array([1, 1, 5, 9, 1])
    slow, quick = (SimpleNamespace(rounds=[{"wall": t * x} for x in load]) for t in (3.0, 2.0))
    assert table.ratio(slow, quick, "wall") == pytest.approx((1.5,) * 4)
