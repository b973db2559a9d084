"""A step compiled without text or chips has the shapes, memory and FLOPs of a real one."""

import importlib
import math

import jax
import pytest

from benchmarks.contest import synthetic_data
from pretrain.aot import compiled_step, roofline
from pretrain.data.batches import dummy
from tests.support import tiny_runs
from tests.support.slices import compile_step, grid_devices, make_slice


@pytest.fixture(scope="module", params=tiny_runs.quickly("clm"))
def step(request) -> compiled_step.Step:
    """A recipe's step on the devices of the tests, split over every axis."""
    return compile_step(request.param, data=2, fsdp=2, tensor=2)


def test_memory_is_counted_by_purpose(step):
    like = step.steps.like
    shares = {
        name: sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in leaves)
        for name, leaves in {
            "parameters": jax.tree.leaves(like.params),
            "optimiser": jax.tree.leaves(like.opt),
            "carry": jax.tree.leaves(like.carry),
        }.items()
    }
    assert shares["parameters"] > 0
    # The learning rate's step may be one number with Adam's.
    assert {name: step.memory[name] for name in shares} == pytest.approx(shares, abs=8)
    assert step.memory["activations"] > 0


def test_no_large_optimiser_state_is_whole_on_every_chip(step):
    leaves = jax.tree_util.tree_leaves_with_path(step.steps.like.opt)
    characters = [x for path, x in leaves if "character_E" in jax.tree_util.keystr(path)]
    small = sum(x.size * x.dtype.itemsize for x in characters)  # of a real model, too
    assert step.whole["optimiser"] - small < 0.1 * step.memory["optimiser"]


def test_compiled_flops_are_those_of_the_recipe(step):
    target = make_slice("v5e", 2, 4)
    estimate = roofline.estimate(step.program, target, grid_devices(2, 4))
    # The recipe counts half of a causal model's scores; the program computes all.
    assert 1.0 <= estimate.flops / step.flops < 2.0


@pytest.mark.parametrize(
    ("recipe", "preset"),
    [("bert", "large"), ("bert", "roberta"), ("elmo", "mini"), ("gpt2", "124m"), ("xlnet", "base")],
)
def test_dummy_batches_have_the_shapes_of_real_ones(recipe, preset):
    config = importlib.import_module(f"configs.{recipe}").get_config(preset)
    config.batches.B = 4
    found = dummy.rows(**config.batches).batch(0)
    wanted = synthetic_data.layout(config.to_dict()).batch(0, slice(0, 1))
    assert {k: (x.shape, x.dtype) for k, x in found.items()} == {
        k: (x.shape, x.dtype) for k, x in wanted.items()
    }
