"""A run is opened with the weights that it is to be judged by."""

import jax

import modules
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.trained_run import build_run, load_backbone_params
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]


def one_device() -> Layout:
    return Layout(make_mesh(devices=jax.devices()[:1]))


def test_the_average_is_read_where_the_run_keeps_one(toy, tmp_path):
    config = toy.config("clm", {"train.average": 0.5})
    state = toys.train(config, tmp_path)
    kept = build_run(tmp_path, config, None, modules.build(**config.model))
    toys.assert_same(load_backbone_params(kept, one_device())[0], state.average["backbone"])
