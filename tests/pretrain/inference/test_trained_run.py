"""A run is opened with the weights that it is to be judged by."""

import modules
from pretrain.checkpoint import manager
from pretrain.inference.trained_run import build_run, load_backbone_params
from tests.support.tiny_models import draw_params, layout
from tests.support.tiny_runs import assert_same

pytest_plugins = ["tests.support.tiny_runs"]


def test_the_average_is_read_where_the_run_keeps_one(toy, tmp_path):
    config = toy.config("clm")
    run = build_run(tmp_path, config, None, modules.build(**config.model))
    weights, average = (draw_params(run.backbone, seed) for seed in (0, 1))
    checkpoints = manager.Checkpoints(tmp_path, asynchronous=False)
    state = {"params": {"backbone": weights}, "average": {"backbone": average}}
    checkpoints.save(1, state, {})
    checkpoints.close()
    assert_same(load_backbone_params(run, layout())[0], average)
