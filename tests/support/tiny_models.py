"""Runs whose weights are drawn at random, and the lines whose vectors are asked of them."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.backbones import text_mask
from pretrain.checkpoint import manager
from pretrain.data import prepare
from pretrain.data.tokenizers import registry
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.trained_run import load_run
from pretrain.runtime import run_config

pytest_plugins = ["tests.support.tiny_runs"]

KINDS = ["mlm", "clm", "plm", "bilm"]
STEP = 3
LSTM = dict(name="elmo", V=20, D=8, U=12, N=2, E=4, filters=((1, 4), (2, 8)), highways=1, W=12)


@pytest.fixture(scope="module")
def run(toy, tmp_path_factory):
    """A run of that objective with weights drawn at random, in a workdir not to be changed."""

    @functools.cache
    def make(kind):
        config = toy.config("plm" if kind == "bilm" else kind)
        workdir = tmp_path_factory.mktemp(kind)
        if kind == "bilm":
            config.model, config.text_format = LSTM, "elmo"
            words = dict(name="words", split="blank")
            tokenizer = registry.learn(iter(toy.text.read_text().splitlines()), **words)
        else:
            tokenizer = prepare.prepare(**config.corpus).tokenizer
        tokenizer.save(workdir / "tokenizer")
        run_config.write_config(workdir, json.loads(config.to_json_best_effort()))
        save(workdir, draw_params(load_run(workdir).backbone))
        return load_run(workdir)

    return make


def save(workdir, params, step=STEP):
    kept = manager.Checkpoints(workdir, asynchronous=False)
    kept.save(step, {"params": {"backbone": params}}, {})
    kept.close()


def draw_params(backbone, seed=0):
    """Parameters so large that all of them matter."""
    tokens = backbone.example()
    init = functools.partial(backbone.init, mask=text_mask(backbone), train=False)
    shapes = jax.eval_shape(init, jax.random.key(0), tokens)["params"]
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(0.3, 0.4, x.shape), x.dtype), shapes)


def layout(devices=1):
    return Layout(make_mesh(devices=jax.devices()[:devices]))


@pytest.fixture
def lines(toy):
    """Some of the toy's, of several lengths, in no order; two are equal and two are empty."""
    words = toy.text.read_text().split()
    return [" ".join(words[5 * n : 6 * n]) for n in (3, 1, 0, 6, 2, 3, 0, 5, 1)]
