"""The compiled functions of a run: what they announce, and when they break off."""

import jax
import numpy as np
import pytest

from modules.metrics import Sum
from pretrain.data.batches.loader import phases
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]


@pytest.fixture(scope="module")
def build(toy):
    """(scalars) -> (compiled functions on one device, held-out layout)."""
    config = toy.config("bilm")
    objective, train, evals = toys.build(config)
    layout = Layout(make_mesh(devices=jax.devices()[:1]))

    def build(scalars=None):
        tx, _ = optimizer.make(**config.optim)
        steps = Steps(objective, tx, layout, phases(train), seed=0, scalars=scalars)
        return steps, evals["held_out"]

    return build


def test_a_state_without_scalars_has_no_leaf_for_them(build):
    (plain, _), (more, _) = build(), build({"lr_scale": 1.0, "average_rate": 0.5})
    leaves = len(jax.tree.leaves(plain.like))
    parameters = len(jax.tree.leaves(plain.like.params))
    assert plain.like.scalars is plain.like.average is None
    assert len(jax.tree.leaves(more.like)) == leaves + 2 + parameters
    fresh = more.init()
    toys.assert_same(fresh.average, fresh.params)
    assert jax.device_get(fresh.scalars) == {"lr_scale": 1.0, "average_rate": 0.5}
    for x, like in zip(jax.tree.leaves(fresh), jax.tree.leaves(more.like), strict=True):
        assert (x.shape, x.dtype, x.sharding) == (like.shape, like.dtype, like.sharding)


def test_a_scalar_that_no_step_reads_is_refused(build):
    with pytest.raises(ValueError, match="scalar 'lr_size' is none of lr_scale, average_rate"):
        build({"lr_size": 1.0})


def test_an_evaluation_is_a_pure_function_in_float64(build):
    steps, held_out = build()
    params = steps.init().params
    one, again = (steps.evaluate(params, held_out, lambda: False, 2) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    sums = [x for x in one.values() if isinstance(x, Sum)]
    assert all(np.asarray(x.weight).dtype == np.float64 for x in sums)
    half = steps.evaluate(params, held_out, lambda: False, 1)
    assert 0 < half["loss"].weight < one["loss"].weight


def test_an_evaluation_asked_to_stop_returns_nothing(build):
    steps, held_out = build()
    assert steps.evaluate(steps.init().params, held_out, lambda: True, 2) is None
