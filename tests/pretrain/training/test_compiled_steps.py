"""The compiled functions of a run: what they announce, and when they break off."""

import jax
import numpy as np
import pytest

from modules.metrics import Sum
from pretrain.aot import step_memory
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime.errors import UserError
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from tests.support import regression
from tests.support import tiny_runs as toys
from tests.support.slices import make_slice

TX, _ = optimizer.make(lr=0.01, steps=6)
HELD_OUT = regression.Layout(shuffle=False)


def build(scalars=None) -> Steps:
    """Builds the compiled functions on one device."""
    layout = Layout(make_mesh(devices=jax.devices()[:1]))
    return Steps(regression.Objective(), TX, layout, [regression.Layout()], seed=0, scalars=scalars)


def test_a_state_without_scalars_has_no_leaf_for_them():
    plain, more = build(), build({"lr_scale": 1.0, "average_rate": 0.5})
    leaves = len(jax.tree.leaves(plain.like))
    parameters = len(jax.tree.leaves(plain.like.params))
    assert plain.like.scalars is plain.like.average is None
    assert len(jax.tree.leaves(more.like)) == leaves + 2 + parameters
    fresh = more.init()
    toys.assert_same(fresh.average, fresh.params)
    assert jax.device_get(fresh.scalars) == {"lr_scale": 1.0, "average_rate": 0.5}
    for x, like in zip(jax.tree.leaves(fresh), jax.tree.leaves(more.like), strict=True):
        assert (x.shape, x.dtype, x.sharding) == (like.shape, like.dtype, like.sharding)


def test_a_scalar_that_no_step_reads_is_refused():
    with pytest.raises(ValueError, match="scalar 'lr_size' is none of lr_scale, average_rate"):
        build({"lr_size": 1.0})


class Comparing(regression.Objective):
    compares_rows = True


def test_rows_that_are_compared_are_not_read_in_parts_without_the_methods():
    layout = Layout(make_mesh(devices=jax.devices()[:1]))
    with pytest.raises(UserError, match=r"train.parts=2: .* has no encode_rows"):
        Steps(Comparing(), TX, layout, [regression.Layout()], seed=0, parts=2)


@pytest.mark.parametrize("recipe", ["clm", "plm"])
def test_a_kernel_that_cannot_be_used_is_refused_before_a_state_is_made(recipe):
    config = toys.get_config(recipe)
    config.execution.attention_form = "kernel"
    place = make_slice("v5e", 1, 1, devices=jax.devices()[:1])
    with pytest.raises(UserError, match=r"execution\.attention_form='kernel': there is none"):
        step_memory.build_steps(config, place)


def test_an_evaluation_is_a_pure_function_in_float64():
    steps = build()
    params = steps.init().params
    one, again = (steps.evaluate(params, HELD_OUT, lambda: False, 2) for _ in range(2))
    jax.tree.map(np.testing.assert_array_equal, one, again)
    sums = [x for x in one.values() if isinstance(x, Sum)]
    assert all(np.asarray(x.weight).dtype == np.float64 for x in sums)
    half = steps.evaluate(params, HELD_OUT, lambda: False, 1)
    assert 0 < half["loss"].weight < one["loss"].weight


def test_an_evaluation_asked_to_stop_returns_nothing():
    steps = build()
    assert steps.evaluate(steps.init().params, HELD_OUT, lambda: True, 2) is None


def test_statistics_are_of_the_whole_batch_on_any_mesh_and_evaluation_reads_them():
    results = []
    for mesh in (dict(devices=jax.devices()[:1]), dict(data=8), dict(data=2, fsdp=4)):
        layout = Layout(make_mesh(**mesh))
        data = regression.Layout()
        steps = Steps(regression.NormedObjective(), TX, layout, [data], seed=0)
        state = steps.init()
        for step in range(2):
            state, _ = steps.train(state, layout.shard_batch(data.batch(step), data.B))
        loss = steps.evaluate(state.params, HELD_OUT, lambda: False, 1)["loss"]
        results.append((jax.device_get(state.params), loss.total))
    (params, total), *others = results
    for other in others:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), params, other[0])
        np.testing.assert_allclose(total, other[1], rtol=1e-5)
    batch, norm = HELD_OUT.batch(0), params["norm"]
    x_BD = (batch["x_BD"] - norm["mean_D"]) / np.sqrt(norm["variance_D"] + 1e-5)
    guess_B = (x_BD * norm["scale_D"] + norm["bias_D"]) @ params["w_D"]
    expected = (batch["weight_B"] * (guess_B - batch["y_B"]) ** 2).sum()
    np.testing.assert_allclose(total, expected, rtol=1e-4)
