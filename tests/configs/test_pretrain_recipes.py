"""Every preset of every pretraining recipe builds."""

import importlib
import math
import pathlib

import jax
import pytest

import modules
from benchmarks.contest import synthetic_data
from modules.layers.params import recording
from pretrain import objectives
from pretrain.data.batches.loader import list_phases
from pretrain.data.batches.phases import build_training
from pretrain.distributed.sharding import AXES
from pretrain.runtime.errors import UserError
from pretrain.training import optimizer
from pretrain.training.train_config import TrainConfig
from tests.support.presets import presets

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
SHARED = ("__init__", "common")
RECIPES = sorted(path.stem for path in CONFIGS.glob("*.py") if path.stem not in SHARED)


NORMS, FFN = {"scale_D", "bias_D"}, {"bi_F", "bo_D"}
ATTENTION = {"bq_HK", "bk_HK", "bv_HK"}
BERT = NORMS | FFN | ATTENTION | {"bias_V", "transform_bias_D"}
FILTERS = [f"bias{n}_X" for n in range(1, 8)]
HIGHWAYS = {"carry_X", "transform_X", "projection_D"}
KERNELS = [f"kernel{n}_EX" for n in range(1, 8)]
WORDS = {"character_E", "carry_XX", "transform_XX", "projection_XD"}

# What does not decay, and what lies below all layers: of a recipe, or of one of its presets.
GPT = (NORMS | FFN | ATTENTION, {"token_VD", "position_LD"})
EXPECTED = {
    "bert": (
        BERT | {"pool_bias_D", "next_bias_C"},
        NORMS | {"token_VD", "position_LD", "segment_SD"},
    ),
    "bert:roberta": (BERT, NORMS | {"token_VD", "position_LD", "segment_SD"}),
    "elmo": (HIGHWAYS | {"b_ZGU", "bias_V", *FILTERS}, HIGHWAYS | WORDS | {*FILTERS, *KERNELS}),
    "elmo:mini": (
        HIGHWAYS | {"b_ZGU", "bias_V", *FILTERS[:4]},
        HIGHWAYS | WORDS | {*FILTERS[:4], *KERNELS[:4]},
    ),
    "gpt": GPT,
    "gpt2": GPT,
    "gpt3": GPT,
    "xlnet": (NORMS | FFN | {"bias_V"}, {"token_VD"}),
}


@pytest.mark.parametrize(
    ("recipe", "preset"), [(recipe, preset) for recipe in RECIPES for preset in presets(recipe)]
)
def test_every_preset_builds(recipe, preset):
    """Each section names arguments that its function has, and the state's shapes can be told."""
    config = importlib.import_module(f"configs.{recipe}").get_config(preset)
    assert set(config.mesh) == set(AXES)
    TrainConfig(**config.train)
    tx, rate = optimizer.make(**config.optim)
    peak = max(float(rate(config.optim.warmup + i)) for i in (-1, 0))
    assert peak == pytest.approx(config.optim.lr, rel=1e-3)
    corpus = synthetic_data.build_corpus(config.model.V, 50_000)
    train = build_training(
        corpus, 0, config.optim.steps, {**config.batches, "B": 2}, config.get("first_phase")
    )
    params, infos = described(config, list_phases(train)[0].batch(0))
    jax.eval_shape(tx.init, params)
    size = sum(math.prod(x.shape) for x in jax.tree.leaves(params))
    assert size > config.model.V * config.model.D
    of = lambda test: {leaf(path) for path, info in by_path(infos) if test(info)}  # noqa: E731
    below = config.model.N
    found = of(lambda info: not info.decay), of(lambda info: info.layers_above == below)
    assert found == (EXPECTED.get(f"{recipe}:{preset}") or EXPECTED[recipe])
    stacks = {info.layers_above for path, info in by_path(infos) if "layers" in str(path)}
    assert stacks == {tuple(range(config.model.N - 1, -1, -1))}


def described(config, rows):
    """The shapes of a recipe's parameters, and what they say of themselves."""
    backbone = modules.build(**config.model, execution=config.execution)
    objective = objectives.build(
        backbone=backbone,
        head=config.head,
        special=synthetic_data.SPECIAL,
        execution=config.execution,
        **config.objective,
    )
    rngs = dict.fromkeys(("params", "dropout", "corrupt"), jax.random.key(0))
    with recording() as record:
        variables = jax.eval_shape(lambda: objective.init(rngs, rows, train=True))
    return variables["params"], record.infos(variables["params"])


def by_path(infos):
    return jax.tree_util.tree_leaves_with_path(infos)


def leaf(path):
    return path[-1].key


def test_an_execution_that_nothing_has_is_refused():
    config = importlib.import_module("configs.gpt").get_config("mini")
    backbone = modules.build(**config.model, execution=config.execution)
    with pytest.raises(UserError, match=r"^execution\.block: neither .* 'clm' has it$"):
        objectives.build(
            backbone=backbone, execution={**config.execution, "block": 8}, **config.objective
        )
