"""Who may look at whom, against the masks of the released code."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules import masks
from pretrain.objectives import corruption

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "fixtures" / "golden.json").read_text())
CASE = GOLDEN["local_perm"]
ORDERS = {8: CASE["perm_rows"], 4: GOLDEN["local_perm_size4"]["index"]}
HIDDEN = {8: np.array(CASE["perm_mask"]), 4: np.array(GOLDEN["local_perm_size4"]["perm_mask"])}
TOKENS_L, PICKED_L = np.array(CASE["input"]), np.array(CASE["is_masked"]) == 1
SPECIAL_L = (TOKENS_L == 3) | (TOKENS_L == 4)


def visible(rank_L, below_L):
    return np.asarray(masks.permuted(rank_L[None], below_L[None])[0])


def half(size):
    return corruption.ranks(jnp.array(ORDERS[size]), PICKED_L, SPECIAL_L)


@pytest.mark.parametrize("size", [8, 4])
def test_an_order_hides_what_the_released_code_hides(size):
    np.testing.assert_array_equal(~visible(*half(size)), HIDDEN[size] == 1)


def test_the_later_half_sees_all_of_the_earlier_which_sees_none_of_it():
    hidden = ~visible(*corruption.after(half(8), half(4), 8))
    expected = np.block([[HIDDEN[8], np.ones((8, 8))], [np.zeros((8, 8)), HIDDEN[4]]])
    np.testing.assert_array_equal(hidden, expected == 1)


def test_no_place_of_the_earlier_half_sees_the_later_whoever_comes_last():
    order_L, none = jnp.arange(4), np.zeros(4, bool)
    earlier = corruption.ranks(order_L, none, ~none)  # the last in its order sees itself
    seen = visible(*corruption.after(earlier, corruption.ranks(order_L, none, none), 4))
    assert not seen[:4, 4:].any()
    assert seen[4:].all()


def test_context_sees_context_only_and_each_prediction_one_more_than_the_last():
    L = 24
    order_L = jax.random.permutation(jax.random.key(0), L)
    picked_L = np.isin(np.arange(L), [2, 3, 9, 17, 18, 20])
    special_L = np.isin(np.arange(L), [12, 23])
    rank_L, below_L = corruption.ranks(order_L, picked_L, special_L)
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


@pytest.mark.parametrize("window", [0, 1, 3, 20])
def test_before_shows_each_place_itself_and_its_past_or_its_window(window):
    place_BL = np.array([[0, 5, 2, 2], [7, 6, 0, 8]])
    seen = masks.before(place_BL, 8, window)
    assert seen.shape == (2, 4, 8)
    for b, i, j in np.ndindex(2, 4, 8):
        back = place_BL[b, i] - j
        assert seen[b, i, j] == (back >= 0 and (not window or back < window))


def test_in_a_row_read_in_order_before_is_causal():
    np.testing.assert_array_equal(masks.before(jnp.arange(6)[None], 6), masks.causal(6, 6))


def test_within_shows_the_first_so_many_of_a_row():
    seen = masks.within(jnp.array([3, 0, 5]), 5)
    assert seen.shape == (3, 1, 5)
    assert [row.tolist() for row in seen[:, 0]] == [
        [True] * n + [False] * (5 - n) for n in (3, 0, 5)
    ]


def test_same_shows_everybody_their_own_group():
    own_BL, groups_BJ = np.array([[1, 2], [0, 0]]), np.array([[2, 1, 1], [1, 0, 3]])
    seen = masks.same(own_BL, groups_BJ)
    for b, i, j in np.ndindex(2, 2, 3):
        assert seen[b, i, j] == (own_BL[b, i] == groups_BJ[b, j])
