"""Sums of batches add up by name, and their unit is one that is known."""

import pytest

from modules.metrics import Sum, add


def test_sums_and_weights_of_two_batches_add_up():
    one, other = ({"loss": Sum(t, w, "nats", train=True)} for t, w in ((6.0, 2.0), (1.0, 8.0)))
    assert add(one, other) == {"loss": Sum(7.0, 10.0, "nats", train=True)}
    assert add({}, one) == one
    assert add(one, {"norm": Sum(1.0, 1.0)}) == {**one, "norm": Sum(1.0, 1.0)}


def test_an_unknown_unit_is_refused():
    with pytest.raises(ValueError, match="unit='V' is none of"):
        Sum(3.0, 2.0, "V")
