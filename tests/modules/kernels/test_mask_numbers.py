"""Numbers of queries and keys say what a mask says."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import mask_numbers as numbers
from modules.masks import Mask, make_view

B, L, M = 3, 6, 4
J = M + L
RNG = np.random.default_rng(0)
BITS_BL = functools.partial(RNG.random, (B, L))
MASKS = [
    Mask(),
    Mask(is_causal=True, same_length=True),
    Mask(window=3, lengths_B=np.array([6, 0, 3])),
    Mask(is_causal=True, prefix_B=np.array([0, 2, 6]), valid_BL=BITS_BL() < 0.6),
    Mask(groups_BL=np.sort(RNG.integers(0, 3, (B, L)))),
    Mask(
        rank_BL=RNG.integers(-1, 5, (B, L)),
        sees_below_BL=RNG.integers(-1, 5, (B, L)),
        memory_BM=RNG.random((B, M)) < 0.6,
        sees_memory_BL=BITS_BL() < 0.6,
        is_causal=True,
    ),
]
SLOTS_BP = np.array([[5, 0], [2, 2], [1, 4]])


def show(view, P):
    """Returns who sees whom, by the numbers that are needed."""
    columns, rows = numbers.list_needed(view)
    queries = numbers.number_queries(view, J, B, P)
    column = {n: np.asarray(queries[n])[..., None] for n in columns}
    keys = numbers.number_keys(view, J, B)
    row = {n: np.asarray(keys[n])[:, None] for n in rows}
    seen = np.arange(J) < column["end"]
    if "first" in columns:
        seen &= np.arange(J) >= column["first"]
    if "below" in columns:
        seen &= row["rank"] < column["below"]
    if "group" in columns:
        seen &= row["key_group"] == column["group"]
    if "own" in columns:
        seen |= np.arange(J) == column["own"]
    return seen


@pytest.mark.parametrize("slots_BP", [None, SLOTS_BP])
@pytest.mark.parametrize("number", range(len(MASKS)))
def test_needed_numbers_show_what_the_mask_shows(number, slots_BP):
    view = make_view(MASKS[number], L, J, slots_BP=slots_BP, sees_itself=number % 2 == 0, window=2)
    view = view.restrict_to_band(jnp.array(number > 3)) if number > 2 else view
    P = view.visible.shape[2]
    seen_BPJ = show(view, P + 2)
    np.testing.assert_array_equal(seen_BPJ[:, :-2], np.broadcast_to(view.visible[:, 0], (B, P, J)))
    assert not seen_BPJ[:, -2:].any()  # queries that fill up a block


def test_a_mask_of_lengths_needs_the_end_alone():
    lengths = make_view(Mask(lengths_B=np.array([6, 0, 3]), is_causal=True), L)
    assert numbers.list_needed(lengths) == (("end",), ())
