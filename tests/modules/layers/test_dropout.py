"""Dropout's share, and when nothing is dropped."""

import math

import jax
import numpy as np
import pytest

from modules.layers.dropout import Dropout
from tests.support.arrays import draw


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_scales_up_the_rest(rate):
    x = 1 + np.abs(draw(400, 500))
    y = np.asarray(Dropout(rate).apply({}, x, train=True, rngs={"dropout": jax.random.key(0)}))
    share = (y == 0).mean()
    assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / x.size)
    np.testing.assert_allclose(y[y != 0], (x / (1 - rate))[y != 0], rtol=1e-6)


def test_nothing_is_dropped_at_rate_zero_and_outside_training():
    x = draw(4, 5)
    np.testing.assert_array_equal(Dropout(0.5).apply({}, x, train=False), x)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, x, train=True), x)


def test_entries_along_a_shared_axis_have_one_decision():
    x = 1 + np.abs(draw(40, 6, 50))
    drop = Dropout(0.5, shared=(1,))
    y = np.asarray(drop.apply({}, x, train=True, rngs={"dropout": jax.random.key(0)}))
    np.testing.assert_array_equal(y, np.where(y[:, :1] == 0, 0, 2 * x))
    assert 0.4 < (y == 0).mean() < 0.6
