"""What was saved comes back, exactly, anywhere, whatever went wrong."""

import os

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from pretrain.checkpoint import streaming_writer, transfer
from pretrain.checkpoint.manager import Checkpoints
from pretrain.runtime.errors import UserError


@flax.struct.dataclass
class State:
    step: jax.Array
    params: dict
    carry: dict
    opt: tuple


def state(seed=0) -> State:
    keys = iter(jax.random.split(jax.random.key(seed), 4))
    backbone = {
        "token_VD": jax.random.normal(next(keys), (16, 8)),
        "layers": {"w_DF": jax.random.normal(next(keys), (2, 8, 24), jnp.bfloat16)},
        "minus_zero_D": -jnp.zeros(8),
    }
    params = {"backbone": backbone, "head": {"b_C": jax.random.normal(next(keys), (8,))}}
    carry = {"memory": {"h_BMD": jax.random.normal(next(keys), (8, 2, 8), jnp.float16)}}
    carry["memory"] |= {"live_B": jnp.arange(8) % 3 == 0, "seen": jnp.int8(-3)}
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return State(jnp.int32(seed), params, carry, tx.init(params))


def assert_same(found, expected):
    def same(a, b):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()

    jax.tree.map(same, found, expected)


def laid_out(tree, mesh_shape):
    """`tree` over a mesh: matrices by their first dimension over "data", their second the rest."""
    size = int(np.prod(mesh_shape))
    axes = ("data", "fsdp", "tensor")
    mesh = jax.make_mesh(
        mesh_shape, axes, devices=jax.devices()[:size], axis_types=(AxisType.Auto,) * 3
    )

    def place(leaf):
        fits = [leaf.shape[i : i + 1] != () and leaf.shape[i] % 8 == 0 for i in range(2)]
        spec = P(*(axis if ok else None for axis, ok in zip(("data", axes[1:]), fits, strict=True)))
        return jax.device_put(leaf, NamedSharding(mesh, spec if leaf.ndim > 1 else P()))

    return jax.tree.map(place, tree)


def abstract(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), tree)


@pytest.fixture
def opened():
    """Opens Checkpoints and closes them at the end."""
    everything = []

    def open_in(workdir, **options):
        everything.append(Checkpoints(workdir, **options))
        return everything[-1]

    yield open_in
    for checkpoints in everything:
        checkpoints.close()


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
    layouts = [(8, 1, 1), (2, 2, 2), (1, 1, 1), (1, 4, 2)]
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


@pytest.mark.parametrize("name", ["a[b]", "[!a]/run", "a\\b", "a**"])
def test_names_that_orbax_takes_for_patterns_are_refused(tmp_path, name):
    for save in (Checkpoints, lambda workdir: streaming_writer.write(workdir, 0, [])):
        with pytest.raises(UserError, match=r"take another --workdir"):
            save(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_all_but_the_steps_named_are_deleted(tmp_path, opened):
    checkpoints = opened(tmp_path, keep=None)
    for step in range(4):
        checkpoints.save(step, {"x": jnp.ones(2)}, {"at": step})
    checkpoints.keep_only({1, 3, 9})
    assert [position["at"] for position in checkpoints.positions()] == [3, 1]
    checkpoints.save(2, {"x": jnp.ones(2)}, {"at": 7})
    checkpoints.wait()
    assert [position["at"] for position in checkpoints.positions()] == [3, 7, 1]


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
def test_a_state_that_is_not_finite_is_not_saved_and_is_named(tmp_path, opened, value):
    bad = state()
    bad.params["head"]["b_C"] = bad.params["head"]["b_C"].at[3].set(value)
    with pytest.raises(FloatingPointError, match=r"step 4 .*: params/head/b_C$"):
        opened(tmp_path).save(4, bad, {})
    assert opened(tmp_path).restore(bad) is None


def test_a_backbone_comes_from_another_run_laid_out_as_the_params_given(tmp_path, opened):
    checkpoints = opened(tmp_path)
    checkpoints.save(9, laid_out(state(), (8, 1, 1)), {})
    checkpoints.wait()
    mine = laid_out(state(1).params, (2, 2, 2))
    mine["classes"] = mine.pop("head")
    params = transfer.load_backbone(mine, tmp_path)
    assert_same(params["backbone"], state().params["backbone"])
    assert params["classes"] is mine["classes"]
    token = params["backbone"]["token_VD"]
    assert token.sharding == mine["backbone"]["token_VD"].sharding


def test_a_backbone_is_verified_and_the_other_run_left_as_it_is(tmp_path, opened):
    checkpoints = opened(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, state(step), {})
    checkpoints.wait()
    (tmp_path / "checkpoints" / "2" / "record" / "metadata").write_text("{}")
    params = transfer.load_backbone(state().params, tmp_path)
    assert_same(params["backbone"], state(1).params["backbone"])
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["1", "2"]


def test_a_backbone_of_another_shape_is_refused_leaf_by_leaf(tmp_path, opened):
    checkpoints = opened(tmp_path)
    checkpoints.save(1, state(), {})
    checkpoints.wait()
    params = state().params
    backbone = params["backbone"] | {"token_VD": jnp.ones((20, 8)), "extra_D": jnp.ones(8)}
    del backbone["layers"]
    with pytest.raises(UserError) as refusal:
        transfer.load_backbone({**params, "backbone": backbone}, tmp_path)
    assert str(refusal.value).splitlines()[1:] == [
        "  params/backbone/layers/w_DF: checkpoint (2, 8, 24) bfloat16, this recipe (absent)",
        "  params/backbone/token_VD: checkpoint (16, 8) float32, this recipe (20, 8) float32",
        "  params/backbone/extra_D: checkpoint (absent), this recipe (8,) float32",
    ]


def test_a_backbone_from_a_folder_without_checkpoints_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"there is no checkpoint in .*nowhere/checkpoints"):
        transfer.load_backbone(state().params, tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []
