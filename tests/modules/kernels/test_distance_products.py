"""A query meets the distances of its row's direction, in whatever order rows read."""

import jax
import numpy as np
import pytest

from modules.activation_sharding import choose_form
from modules.kernels import distance_products
from tests.support.kernel_cases import Case, assert_is_reference, every_form

B, c, N, R, H, K = 8, 2, 3, 5, 2, 4
RNG = np.random.default_rng(0)
DIRECTIONS = {
    "in turns": np.arange(B) % 2 == 1,
    "in turns, backwards first": np.arange(B) % 2 == 0,
    "in pairs": np.arange(B) // 2 % 2 == 1,
    "all forwards": np.zeros(B, bool),
}


def make_case(r_shape, backward_B=None) -> Case:
    return Case(
        lambda a: choose_form(distance_products.FORMS)(a["q_BcNHK"], a["r"], backward_B),
        lambda a: distance_products.reference(a["q_BcNHK"], a["r"], backward_B),
        {"q_BcNHK": RNG.normal(size=(B, c, N, H, K)), "r": RNG.normal(size=(*r_shape, R, H, K))},
        (distance_products,),
    )


CASES = {name: make_case((2, c), backward_B) for name, backward_B in DIRECTIONS.items()}
CASES |= {"one table": make_case((c,)), "a table for each row": make_case((B, c))}


@pytest.mark.parametrize("name", CASES)
@every_form(CASES["one table"])
def test_values_and_gradients_are_the_reference_s(name, form, devices, monkeypatch):
    assert_is_reference(CASES[name], form, devices, monkeypatch)


@pytest.mark.parametrize(("name", "is_general"), [("in turns", False), ("in pairs", True)])
def test_only_rows_in_no_turns_copy_distances(name, is_general, monkeypatch):
    copied = distance_products.reference
    poisoned = lambda *inputs, **more: np.nan * copied(*inputs, **more)  # noqa: E731
    monkeypatch.setattr(distance_products, "reference", poisoned)
    fast = CASES[name].fast
    grads = jax.grad(lambda a: fast(a).sum())(CASES[name].arrays)
    for x in (fast(CASES[name].arrays), *grads.values()):
        assert np.isnan(x).all() == is_general
