"""Every preset of every pretraining recipe builds."""

import importlib
import math
import pathlib

import jax
import pytest

import modules
from benchmarks.contest import synthetic_data
from pretrain import objectives
from pretrain.data.batches.loader import phases
from pretrain.data.batches.phases import build_training
from pretrain.distributed.sharding import AXES
from pretrain.training import optimizer
from pretrain.training.loop import Plan
from tests.support.presets import presets

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
SHARED = ("__init__", "common")
RECIPES = sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem not in SHARED)


@pytest.mark.parametrize(
    ("recipe", "preset"), [(recipe, preset) for recipe in RECIPES for preset in presets(recipe)]
)
def test_every_preset_builds(recipe, preset):
    """Each section names arguments that its function has, and the state's shapes can be told."""
    config = importlib.import_module(f"configs.{recipe}").get_config(preset)
    assert set(config.mesh) == set(AXES)
    Plan(**config.train)
    tx, rate = optimizer.make(**config.optim)
    peak = max(float(rate(config.optim.warmup + i)) for i in (-1, 0))
    assert peak == pytest.approx(config.optim.lr, rel=1e-3)
    corpus = synthetic_data.corpus(config.model.V, 50_000)
    train = build_training(
        corpus, 0, config.optim.steps, {**config.batches, "B": 2}, config.get("first")
    )
    rows = phases(train)[0].batch(0)
    backbone = modules.build(**config.model)
    objective = objectives.build(
        backbone=backbone, special=synthetic_data.SPECIAL, **config.objective
    )
    rngs = dict.fromkeys(("params", "dropout", "corrupt"), jax.random.key(0))
    variables = jax.eval_shape(lambda: objective.init(rngs, rows, train=True))
    jax.eval_shape(tx.init, variables["params"])
    size = sum(math.prod(x.shape) for x in jax.tree.leaves(variables["params"]))
    assert size > config.model.V * config.model.D
