"""modules/masks.py: who may look at whom, against the masks of the released code."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules import masks
from pretrain import corrupt

GOLDEN = json.loads((pathlib.Path(__file__).parent / "fixtures" / "golden.json").read_text())
CASE = GOLDEN["local_perm"]
ORDERS = {8: CASE["perm_rows"], 4: GOLDEN["local_perm_size4"]["index"]}
HIDDEN = {8: np.array(CASE["perm_mask"]), 4: np.array(GOLDEN["local_perm_size4"]["perm_mask"])}
TOKENS_L, PICKED_L = np.array(CASE["input"]), np.array(CASE["is_masked"]) == 1
SPECIAL_L = (TOKENS_L == 3) | (TOKENS_L == 4)


def visible(rank_L, below_L):
    return np.asarray(masks.permuted(rank_L[None], below_L[None])[0])


def half(size):
    return corrupt.ranks(jnp.array(ORDERS[size]), PICKED_L, SPECIAL_L)


@pytest.mark.parametrize("size", [8, 4])
def test_an_order_hides_what_the_released_code_hides(size):
    np.testing.assert_array_equal(~visible(*half(size)), HIDDEN[size] == 1)


def test_the_later_half_sees_all_of_the_earlier_which_sees_none_of_it():
    hidden = ~visible(*corrupt.after(half(8), half(4), 8))
    expected = np.block([[HIDDEN[8], np.ones((8, 8))], [np.zeros((8, 8)), HIDDEN[4]]])
    np.testing.assert_array_equal(hidden, expected == 1)


def test_no_place_of_the_earlier_half_sees_the_later_whoever_comes_last():
    order_L, none = jnp.arange(4), np.zeros(4, bool)
    earlier = corrupt.ranks(order_L, none, ~none)  # the last in its order sees itself
    seen = visible(*corrupt.after(earlier, corrupt.ranks(order_L, none, none), 4))
    assert not seen[:4, 4:].any()
    assert seen[4:].all()


def test_context_sees_context_only_and_each_prediction_one_more_than_the_last():
    L = 24
    order_L = jax.random.permutation(jax.random.key(0), L)
    picked_L = np.isin(np.arange(L), [2, 3, 9, 17, 18, 20])
    special_L = np.isin(np.arange(L), [12, 23])
    rank_L, below_L = corrupt.ranks(order_L, picked_L, special_L)
    seen = visible(rank_L, below_L)
    context_L = ~(picked_L | special_L)
    np.testing.assert_array_equal(seen[context_L], np.tile(context_L, (context_L.sum(), 1)))
    by_order = sorted(np.flatnonzero(~context_L), key=lambda i: order_L[i])
    counts = [context_L.sum() + n + special_L[i] for n, i in enumerate(by_order)]
    assert seen[by_order].sum(1).tolist() == counts
    assert not seen[picked_L, picked_L].any()
    assert np.diag(seen)[special_L].all()


def test_full_shows_every_real_place_to_all():
    valid_BL = np.array([[True, True, False], [True, False, False]])
    seen = masks.full(valid_BL)
    assert seen.shape == (2, 3, 3)
    for b, i, j in np.ndindex(2, 3, 3):
        assert seen[b, i, j] == valid_BL[b, j]


@pytest.mark.parametrize("same_length", [False, True])
@pytest.mark.parametrize(("L", "J"), [(4, 4), (4, 7), (3, 9)])
def test_causal_shows_the_past_and_with_same_length_equally_much_of_it(L, J, same_length):
    seen = np.asarray(masks.causal(L, J, same_length))
    assert seen.shape == (1, L, J)
    for i, j in np.ndindex(L, J):
        in_the_past = j - (J - L) <= i
        assert seen[0, i, j] == (in_the_past and not (same_length and j < i))
    if same_length:
        assert set(seen.sum(-1).ravel()) == {J - L + 1}
