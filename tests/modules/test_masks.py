"""Who sees whom: against the released code, and against a loop over all pairs."""

import functools
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.masks import Mask, count_lengths, make_view
from pretrain.objectives import corruption

GOLDEN = json.loads((pathlib.Path(__file__).parents[1] / "fixtures" / "golden.json").read_text())
CASE = GOLDEN["local_perm"]
ORDERS = {8: CASE["perm_rows"], 4: GOLDEN["local_perm_size4"]["index"]}
HIDDEN = {8: np.array(CASE["perm_mask"]), 4: np.array(GOLDEN["local_perm_size4"]["perm_mask"])}
TOKENS_L, PICKED_L = np.array(CASE["input"]), np.array(CASE["is_masked"]) == 1
SPECIAL_L = (TOKENS_L == 3) | (TOKENS_L == 4)


def visible(rank_L, below_L):
    return np.asarray(Mask(rank_BL=rank_L[None], sees_below_BL=below_L[None]).dense(len(rank_L))[0])


def half(size):
    return corruption.rank_positions(jnp.array(ORDERS[size]), PICKED_L, SPECIAL_L)


@pytest.mark.parametrize("size", [8, 4])
def test_an_order_hides_what_the_released_code_hides(size):
    np.testing.assert_array_equal(~visible(*half(size)), HIDDEN[size] == 1)


def test_the_later_half_sees_all_of_the_earlier_which_sees_none_of_it():
    hidden = ~visible(*corruption.concatenate_ranks(half(8), half(4), 8))
    expected = np.block([[HIDDEN[8], np.ones((8, 8))], [np.zeros((8, 8)), HIDDEN[4]]])
    np.testing.assert_array_equal(hidden, expected == 1)


def test_no_place_of_the_earlier_half_sees_the_later_whoever_comes_last():
    order_L, none = jnp.arange(4), np.zeros(4, bool)
    earlier = corruption.rank_positions(order_L, none, ~none)  # the last in its order sees itself
    seen = visible(
        *corruption.concatenate_ranks(earlier, corruption.rank_positions(order_L, none, none), 4)
    )
    assert not seen[:4, 4:].any()
    assert seen[4:].all()


def test_context_sees_context_only_and_each_prediction_one_more_than_the_last():
    L = 24
    order_L = jax.random.permutation(jax.random.key(0), L)
    picked_L = np.isin(np.arange(L), [2, 3, 9, 17, 18, 20])
    special_L = np.isin(np.arange(L), [12, 23])
    rank_L, below_L = corruption.rank_positions(order_L, picked_L, special_L)
    seen = visible(rank_L, below_L)
    context_L = ~(picked_L | special_L)
    np.testing.assert_array_equal(seen[context_L], np.tile(context_L, (context_L.sum(), 1)))
    by_order = sorted(np.flatnonzero(~context_L), key=lambda i: order_L[i])
    counts = [context_L.sum() + n + special_L[i] for n, i in enumerate(by_order)]
    assert seen[by_order].sum(1).tolist() == counts
    assert not seen[picked_L, picked_L].any()
    assert np.diag(seen)[special_L].all()


# --- every field, against a loop -------------------------------------------------------------

B, L, M = 3, 6, 4
J = M + L
RNG = np.random.default_rng(0)
LENGTHS_B, PREFIX_B = np.array([6, 0, 3]), np.array([0, 2, 6])
VALID_BL, GROUPS_BL = RNG.random((B, L)) < 0.6, np.sort(RNG.integers(0, 3, (B, L)))
RANK_BL, BELOW_BL = RNG.integers(-1, 5, (2, B, L))
MEMORY_BM, SEES_BL = RNG.random((B, M)) < 0.6, RNG.random((B, L)) < 0.6
VISIBLE_BLL, VISIBLE_BLJ = RNG.random((B, L, L)) < 0.6, RNG.random((B, L, J)) < 0.6
SLOTS_BP = np.array([[5, 0], [2, 2], [1, 4]])

# A mask, and whether i of row b sees j; j counts from the sequence's first, memory is below 0.
MASKS = {
    "nothing hidden": (Mask(), lambda b, i, j: True),
    "causal": (Mask(is_causal=True), lambda b, i, j: j <= i),
    "window": (Mask(window=3), lambda b, i, j: j > i - 3),
    "same length": (Mask(is_causal=True, same_length=True), lambda b, i, j: i - M <= j <= i),
    "lengths": (Mask(lengths_B=LENGTHS_B), lambda b, i, j: j < LENGTHS_B[b]),
    "valid": (Mask(valid_BL=VALID_BL), lambda b, i, j: j < 0 or VALID_BL[b, j]),
    "documents": (
        Mask(groups_BL=GROUPS_BL),
        lambda b, i, j: GROUPS_BL[b, i] == (GROUPS_BL[b, j] if j >= 0 else 0),
    ),
    "prefix": (Mask(is_causal=True, prefix_B=PREFIX_B), lambda b, i, j: j <= i or j < PREFIX_B[b]),
    "ranks": (
        Mask(rank_BL=RANK_BL, sees_below_BL=BELOW_BL),
        lambda b, i, j: j < 0 or RANK_BL[b, j] < BELOW_BL[b, i],
    ),
    "text in memory": (Mask(memory_BM=MEMORY_BM), lambda b, i, j: j >= 0 or MEMORY_BM[b, j + M]),
    "who sees memory": (Mask(sees_memory_BL=SEES_BL), lambda b, i, j: j >= 0 or SEES_BL[b, i]),
    "written out": (Mask(visible_BLJ=VISIBLE_BLL), lambda b, i, j: j < 0 or VISIBLE_BLL[b, i, j]),
    "written out with the memory": (
        Mask(visible_BLJ=VISIBLE_BLJ),
        lambda b, i, j: VISIBLE_BLJ[b, i, j + M],
    ),
    "written out for all rows": (
        Mask(visible_BLJ=VISIBLE_BLL[:1, :1]),
        lambda b, i, j: j < 0 or VISIBLE_BLL[0, 0, j],
    ),
}


def dense(mask, slots_BP=None):
    shape = B, L if slots_BP is None else slots_BP.shape[1], J
    return np.broadcast_to(np.asarray(mask.dense(L, J, slots_BP)), shape)


@functools.cache
def looped(sees):
    seen = [sees(b, i, j - M) for b in range(B) for i in range(L) for j in range(J)]
    return np.array(seen, bool).reshape(B, L, J)


@pytest.mark.parametrize("name", MASKS)
def test_a_field_shows_what_a_loop_over_pairs_shows(name):
    mask, sees = MASKS[name]
    expected_BLJ = looped(sees)
    np.testing.assert_array_equal(dense(mask), expected_BLJ)
    rows_BP = np.take_along_axis(expected_BLJ, SLOTS_BP[..., None], 1)
    np.testing.assert_array_equal(dense(mask, SLOTS_BP), rows_BP)


@pytest.mark.parametrize("name", MASKS)
def test_two_masks_joined_show_what_both_show(name):
    one, sees = MASKS[name]
    for two, sees_too in MASKS.values():
        widths = {x.visible_BLJ.shape[-1] for x in (one, two) if x.visible_BLJ is not None}
        if len(widths) < 2:  # of two written out, both say something of the memory or neither does
            np.testing.assert_array_equal(dense(one & two), looped(sees) & looped(sees_too))


def test_documents_and_prefixes_of_two_masks_are_joined_pair_by_pair():
    groups_BL = np.sort(RNG.integers(0, 3, (B, L)))
    prefix_B = np.array([3, 0, 1])
    for one, two in (
        (Mask(groups_BL=GROUPS_BL), Mask(groups_BL=groups_BL)),
        (Mask(is_causal=True, prefix_B=PREFIX_B), Mask(is_causal=True, prefix_B=prefix_B)),
        (Mask(is_causal=True, prefix_B=PREFIX_B), Mask(is_causal=True)),
        (Mask(is_causal=True), Mask(is_causal=True, prefix_B=PREFIX_B)),
    ):
        np.testing.assert_array_equal(dense(one & two), dense(one) & dense(two))


def test_a_mask_passes_through_jit_and_stays_what_it_is():
    mask = Mask(is_causal=True, lengths_B=jnp.array([2, 3, 6]))
    inside = jax.jit(lambda mask: mask.dense(L))(mask)
    np.testing.assert_array_equal(inside, mask.dense(L))


def test_lengths_are_counted_of_rows_padded_at_their_end_alone():
    assert count_lengths(np.arange(4) < [[4], [0], [3]]).tolist() == [4, 0, 3]
    with pytest.raises(ValueError, match=r"text behind padding: give Mask\(valid_BL"):
        count_lengths(np.array([[False, True]]))


# --- as attention takes it -------------------------------------------------------------------

VIEW_L, VIEW_M = 8, 2
VIEW_SLOTS = np.array([[7, 0, 3], [4, 4, 2]])


@pytest.mark.parametrize("banded", [False, True])
@pytest.mark.parametrize("slots_BP", [None, VIEW_SLOTS])
def test_a_banded_layer_sees_the_last_positions_alone(banded, slots_BP):
    view = make_view(Mask(is_causal=True), VIEW_L, slots_BP=slots_BP, window=3)
    i_BL1 = np.arange(VIEW_L)[None, :, None] if slots_BP is None else slots_BP[..., None]
    near = np.arange(VIEW_L) > i_BL1 - (3 if banded else VIEW_L)
    seen = view.restrict_to_band(jnp.array(banded)).visible
    np.testing.assert_array_equal(seen[:, 0], near & (np.arange(VIEW_L) <= i_BL1))


def test_queries_see_themselves_and_whose_segment_is_another_behind_a_memory():
    hides_all = Mask(visible_BLJ=jnp.zeros((1, 1, VIEW_M + VIEW_L), bool))
    segments_BJ = np.random.default_rng(0).integers(0, 3, (2, VIEW_M + VIEW_L))
    view = make_view(
        hides_all,
        VIEW_L,
        VIEW_M + VIEW_L,
        slots_BP=VIEW_SLOTS,
        segments_BJ=segments_BJ,
        sees_itself=True,
    )
    for b, p in np.ndindex(2, 3):
        place = VIEW_M + VIEW_SLOTS[b, p]
        assert np.flatnonzero(view.visible[b, 0, p]) == [place]
        other = segments_BJ[b, place] != segments_BJ[b]
        np.testing.assert_array_equal(view.is_other_segment[b, 0, p], other)
