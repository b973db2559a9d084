"""A run says what it is before its weights are there."""

import shutil

import pytest

from pretrain.inference.trained_run import load_backbone_params, load_run
from pretrain.runtime.errors import UserError
from tests.support.tiny_models import layout, run

pytest_plugins = ["tests.support.tiny_runs"]
__all__ = ["run"]


def test_a_run_without_checkpoints_is_known_up_to_its_weights(run, tmp_path):
    whole = run("mlm")
    shutil.copy(whole.workdir / "config.json", tmp_path)
    shutil.copytree(whole.workdir / "tokenizer", tmp_path / "tokenizer")
    bare = load_run(tmp_path)
    assert bare.config == whole.config
    assert (bare.backbone, bare.head) == (whole.backbone, whole.head)
    assert bare.tokenizer.pieces == whole.tokenizer.pieces
    with pytest.raises(UserError, match="there is no checkpoint"):
        load_backbone_params(bare, layout())
