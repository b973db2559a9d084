"""A step compiled without text or chips has the shapes, memory and FLOPs of a real one."""

import math

import jax
import pytest

from pretrain.aot import roofline, step_memory
from tests.support import tiny_runs
from tests.support.slices import compile_step, grid_devices, make_slice


@pytest.fixture(scope="module", params=tiny_runs.quickly("clm"))
def step(request) -> step_memory.Step:
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
