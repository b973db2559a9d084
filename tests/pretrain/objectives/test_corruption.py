"""Exactly as many as asked, never a special one, in whole words."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pretrain.objectives import corruption
from tests.support.compiler import quick_jit

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "fixtures" / "golden.json").read_text())
L, GOAL = 48, 9
flags = st.lists(st.booleans(), min_size=L, max_size=L).map(np.array)


@quick_jit
def both_ways(rng, starts_L, eligible_L):
    return [
        corruption.sample_spans(rng, starts_L, eligible_L, GOAL, faithful=faithful)
        for faithful in (False, True)
    ]


@settings(deadline=None, max_examples=50)
@given(flags, flags, st.integers(0, 2**31))
def test_exactly_the_goal_is_picked_and_never_what_may_not_be(starts_L, eligible_L, seed):
    for picked_L in both_ways(jax.random.key(seed), starts_L, eligible_L):
        assert picked_L.sum() == min(GOAL, eligible_L.sum())
        assert not (picked_L & ~eligible_L).any()


@pytest.fixture
def no_singles(monkeypatch):
    """Runs alone, without what is drawn singly to reach the goal."""
    monkeypatch.setattr(
        corruption, "sample_positions", lambda rng, eligible_L, goal: eligible_L & False
    )


def draw_many(n, L, goal, faithful):
    """Runs in `n` sequences three quarters of whose pieces begin a word: (picked, starts)."""

    def one(key):
        starts_rng, rng = jax.random.split(key)
        starts_L = jax.random.bernoulli(starts_rng, 0.75, (L,))
        everywhere = jnp.ones(L, bool)
        return corruption.sample_spans(rng, starts_L, everywhere, goal, faithful=faithful), starts_L

    return jax.device_get(quick_jit(jax.vmap(one))(jax.random.split(jax.random.key(0), n)))


def runs(picked_nL):
    """(first, end) of every run, by row."""
    edges = np.diff(np.pad(picked_nL.astype(int), ((0, 0), (1, 1))))
    rows, firsts = np.nonzero(edges == 1)
    return zip(rows, firsts, np.nonzero(edges == -1)[1], strict=True)


@pytest.mark.parametrize(
    ("faithful", "golden"), [(True, "sampler_released"), (False, "sampler_fixed_words")]
)
def test_runs_are_as_long_and_as_many_as_simulated(no_singles, faithful, golden):
    expected = GOLDEN[golden]
    picked_nL, _ = draw_many(2000, 256, expected["goal"], faithful)
    lengths = [end - first for _, first, end in runs(picked_nL)]
    picked = picked_nL.sum(1).mean()
    assert abs(np.mean(lengths) / expected["mean_span"] - 1) < 0.05
    assert abs((1 - picked / expected["goal"]) - max(expected["frac_filled_single"], 0)) < 0.015


def test_a_run_is_of_whole_words_unless_the_goal_cuts_it(no_singles):
    picked_nL, starts_nL = draw_many(500, 96, 16, faithful=False)
    cut = 0
    for row, first, end in runs(picked_nL):
        assert starts_nL[row, first]
        whole = starts_nL[row, end] if end < 96 else False
        cut += not whole
        assert whole or (picked_nL[row].sum() == 16 and end == picked_nL[row].nonzero()[0][-1] + 1)
    assert 0 < cut < 500


def test_the_released_code_s_runs_end_amid_words(no_singles):
    picked_nL, starts_nL = draw_many(500, 96, 16, faithful=True)
    assert all(starts_nL[row, first] for row, first, _ in runs(picked_nL))
    amid = [not starts_nL[row, end] for row, _, end in runs(picked_nL)]
    assert 0.2 < np.mean(amid) < 0.3  # one piece in four does not begin a word


def test_an_order_keeps_its_chunks_in_order_and_permutes_all_alike():
    keys = jax.random.split(jax.random.key(0), 20)
    orders = np.asarray(jax.vmap(lambda key: corruption.sample_order(key, 24, 8))(keys))
    chunks = orders.reshape(20, 3, 8)
    np.testing.assert_array_equal(
        chunks - chunks[:, :1], np.broadcast_to([[0], [8], [16]], (20, 3, 8))
    )
    np.testing.assert_array_equal(np.sort(chunks[:, 0]), np.tile(np.arange(8), (20, 1)))
    assert len({tuple(order) for order in orders}) == 20


def greedily(sizes, goal):
    """One after the other, each that still fits."""
    taken = []
    for size in sizes:
        taken.append(0 < size <= goal)
        goal -= size * taken[-1]
    return taken


WORST = [1, 14, 1, 13, 1, 12, 1, 11, 1, 10, 1, 9, 1, 8, 1, 7]  # every second no longer fits


@pytest.mark.parametrize("largest", [1, 2, 5, 0])
def test_each_unit_that_still_fits_is_taken_however_few_turns_that_is_given(largest):
    rng = np.random.default_rng(largest)
    shape = (200, 128 // (largest or 4))
    sizes = rng.integers(0, (largest or 7) + 1, shape) * (rng.random(shape) < 0.9)
    goals = rng.integers(1, 25, len(sizes))
    take = jax.vmap(lambda size_L, goal: corruption.take_fitting(size_L, goal, largest))
    expected = [greedily(*row) for row in zip(sizes, goals, strict=True)]
    np.testing.assert_array_equal(quick_jit(take)(sizes, goals), expected)


def test_the_most_turns_there_can_be_are_taken():
    size_L = np.array(WORST + [0] * (sum(WORST) - len(WORST)))
    goals = np.arange(1, 30)
    take = quick_jit(jax.vmap(lambda goal: corruption.take_fitting(size_L, goal)))
    np.testing.assert_array_equal(take(goals), [greedily(size_L, goal) for goal in goals])


@pytest.mark.parametrize("faithful", [True, False])
def test_a_run_that_would_touch_the_end_is_given_up(no_singles, faithful):
    picked_nL, _ = draw_many(2000, 40, 12, faithful)
    assert picked_nL[:, :-1].any(0).all()
    assert not picked_nL[:, -1].any()
