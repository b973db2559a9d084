"""What was saved comes back, exactly, anywhere, whatever went wrong."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.checkpoints import abstract, assert_same, laid_out, state

pytest_plugins = ["tests.support.checkpoints"]


def test_there_is_nothing_to_restore_in_a_new_workdir(tmp_path, opened):
    assert opened(tmp_path).restore(abstract(state())) is None


@pytest.mark.parametrize("asynchronous", [True, False])
def test_every_bit_comes_back_with_the_position(tmp_path, opened, asynchronous):
    position = {"next": 17, "corpus": {"sha256": "ab", "tokens": [1, 2]}, "seed": None}
    first = opened(tmp_path, asynchronous=asynchronous)
    first.save(5, state(), position)
    first.close()
    found, at, step = opened(tmp_path).restore(abstract(state(1)))
    assert_same(found, state())
    assert (at, step) == (position, 5)


def test_a_checkpoint_moves_between_layouts_exactly(tmp_path, opened):
    original, checkpoints = state(), opened(tmp_path, keep=9)
    layouts = [(8, 1, 1), (2, 2, 2)]
    checkpoints.save(0, laid_out(original, layouts[0]), {})
    checkpoints.wait()
    for n, layout in enumerate(layouts[1:], start=1):
        like = laid_out(state(1), layout)
        found, _, step = checkpoints.restore(abstract(like))
        assert step == n - 1
        assert_same(found, original)
        assert jax.tree.map(lambda x: x.sharding, found) == jax.tree.map(lambda x: x.sharding, like)
        checkpoints.save(n, found, {})
        checkpoints.wait()


def test_the_state_may_be_donated_as_soon_as_save_returns(tmp_path, opened):
    checkpoints = opened(tmp_path, keep=9)
    clobber = jax.jit(lambda x: jax.tree.map(lambda leaf: leaf * 0 - 1, x), donate_argnums=0)
    for step in range(4):
        original = {"w": jnp.full((1 << 20,), step + 0.5), "n": jnp.arange(99)}
        checkpoints.save(step, original, {})
        for _ in range(3):
            original = clobber(original)
        assert original["w"][0] == -1
    checkpoints.wait()
    found = checkpoints.restore({"w": jnp.zeros(1 << 20), "n": jnp.arange(99)})[0]
    assert_same(found, {"w": jnp.full((1 << 20,), 3.5), "n": jnp.arange(99)})


def test_restoring_waits_for_a_save_under_way(tmp_path, opened):
    checkpoints = opened(tmp_path)
    checkpoints.save(1, {"x": jnp.ones(1 << 20)}, {})
    assert checkpoints.restore({"x": jnp.zeros(1 << 20)})[2] == 1


@pytest.mark.parametrize("name", ["a[b", "a]b", "a*b", "a?b", "{a} 'b", "a[]", "ü#%"])
def test_odd_names_of_a_workdir_change_nothing(tmp_path, opened, name):
    checkpoints = opened(tmp_path / name)
    checkpoints.save(1, {"x": jnp.ones(3)}, {})
    assert checkpoints.restore({"x": jnp.zeros(3)})[2] == 1


def test_all_but_the_steps_named_are_deleted(tmp_path, opened):
    checkpoints = opened(tmp_path, keep=None)
    for step in range(4):
        checkpoints.save(step, {"x": jnp.ones(2)}, {"at": step})
    checkpoints.keep_only({1, 3, 9})
    assert [position["at"] for position in checkpoints.iter_positions()] == [3, 1]
    checkpoints.save(2, {"x": jnp.ones(2)}, {"at": 7})
    checkpoints.wait()
    assert [position["at"] for position in checkpoints.iter_positions()] == [3, 7, 1]


def test_the_newest_few_and_every_nth_are_kept(tmp_path, opened):
    checkpoints = opened(tmp_path, keep=2, keep_every=4)
    for step in range(1, 12):
        checkpoints.save(step, {"x": jnp.ones(2)}, {})
    checkpoints.wait()
    kept = {int(name) for name in os.listdir(tmp_path / "checkpoints")}
    assert kept == {4, 8, 10, 11}


def test_saving_a_step_again_changes_nothing(tmp_path, opened):
    checkpoints = opened(tmp_path)
    for seed in (1, 2):
        checkpoints.save(3, {"x": jnp.full(4, seed)}, {"seed": seed})
    found, position, _ = checkpoints.restore({"x": jnp.zeros(4, int)})
    assert (found["x"][0], position) == (1, {"seed": 1})


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_leaf_that_is_not_finite_is_named_not_saved(tmp_path, opened, value):
    bad = state()
    bad.params["head"]["b_C"] = bad.params["head"]["b_C"].at[3].set(value)
    with pytest.raises(FloatingPointError, match=r"step 4 .*: params/head/b_C$"):
        opened(tmp_path).save(4, bad, {})
    assert opened(tmp_path).restore(bad) is None
