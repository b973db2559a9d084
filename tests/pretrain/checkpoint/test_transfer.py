"""A backbone comes from another run, verified, and that run stays as it is."""

import os

import jax.numpy as jnp
import pytest

from pretrain.checkpoint import transfer
from pretrain.runtime.errors import UserError
from tests.support.checkpoints import assert_same, laid_out, state

pytest_plugins = ["tests.support.checkpoints"]


def test_a_backbone_is_restored_in_the_layout_of_the_params(tmp_path, opened):
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


def test_a_damaged_backbone_is_passed_over_and_stays(tmp_path, opened):
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
