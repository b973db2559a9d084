"""A backbone comes from another run, verified, and that run stays as it is."""

import os

import jax.numpy as jnp
import pytest

from pretrain.checkpoint import transfer
from pretrain.checkpoint.named_leaves import flatten
from pretrain.runtime.errors import UserError
from tests.support.checkpoints import assert_same, laid_out, state

pytest_plugins = ["tests.support.checkpoints"]


def test_a_backbone_is_restored_in_the_layout_of_the_params(tmp_path, opened):
    checkpoints = opened(tmp_path)
    checkpoints.save(9, laid_out(state(), (8, 1, 1)), {})
    checkpoints.wait()
    mine = laid_out(state(1).params, (2, 2, 2))
    params, step = transfer.load(
        {"params": {"backbone": mine["backbone"]}}, tmp_path, "params/backbone/"
    )
    assert_same(params["params"]["backbone"], state().params["backbone"])
    token = params["params"]["backbone"]["token_VD"]
    assert (token.sharding, step) == (mine["backbone"]["token_VD"].sharding, 9)


def test_a_damaged_backbone_is_passed_over_and_stays(tmp_path, opened):
    checkpoints = opened(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, state(step), {})
    checkpoints.wait()
    (tmp_path / "checkpoints" / "2" / "record" / "metadata").write_text("{}")
    like = {"params": {"backbone": state().params["backbone"]}}
    params, step = transfer.load(like, tmp_path, "params/backbone/")
    assert_same(params["params"]["backbone"], state(1).params["backbone"])
    assert step == 1
    named = transfer.describe_leaves(tmp_path, "params/")
    expected = flatten({"params": state(1).params})
    assert {name: (x.shape, x.dtype) for name, x in named.items()} == {
        name: (x.shape, x.dtype) for name, x in expected.items()
    }
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["1", "2"]


def test_a_backbone_of_another_shape_is_refused_leaf_by_leaf(tmp_path, opened):
    checkpoints = opened(tmp_path)
    checkpoints.save(1, state(), {})
    checkpoints.wait()
    params = state().params
    backbone = params["backbone"] | {"token_VD": jnp.ones((20, 8)), "extra_D": jnp.ones(8)}
    del backbone["layers"]
    with pytest.raises(UserError) as refusal:
        transfer.load({"params": {"backbone": backbone}}, tmp_path, "params/backbone/")
    assert str(refusal.value).splitlines()[1:] == [
        "  params/backbone/layers/w_DF: checkpoint (2, 8, 24) bfloat16, this recipe (absent)",
        "  params/backbone/token_VD: checkpoint (16, 8) float32, this recipe (20, 8) float32",
        "  params/backbone/extra_D: checkpoint (absent), this recipe (8,) float32",
    ]


def test_a_backbone_from_a_folder_without_checkpoints_is_an_error(tmp_path):
    with pytest.raises(UserError, match=r"there is no checkpoint in .*nowhere/checkpoints"):
        transfer.load({"params": state().params}, tmp_path / "nowhere", "params/")
    with pytest.raises(UserError, match=r"there is no checkpoint in .*nowhere/checkpoints"):
        transfer.describe_leaves(tmp_path / "nowhere", "params/")
    assert list(tmp_path.iterdir()) == []


def test_merged_parameters_are_restored_grown_new_or_ignored():
    new = {name: jnp.zeros(shape) for name, shape in {"a": (2,), "t": (4, 3), "n": (1,)}.items()}
    old = {name: jnp.ones(shape) for name, shape in {"a": (2,), "t": (3, 3), "x": (1,)}.items()}
    merged, table = transfer.merge(new, old)
    assert [float(merged[name].sum()) for name in "atn"] == [2, 9, 0]
    assert table == [
        "a [2]: restored",
        "t [4, 3]: restored, and 1 new rows",
        "n [1]: new",
        "x: ignored, has no place here",
    ]
    with pytest.raises(UserError, match=r"t: \(4, 3\) here, \(4, 2\) in the pretrained run"):
        transfer.merge(new, {"t": jnp.ones((4, 2))})
