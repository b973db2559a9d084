"""Two dense layers, their gradients and where they drop."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers.feed_forward import FeedForward
from tests.support.xlnet_reference import gelu


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_erf": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "relu": lambda x: np.maximum(x, 0),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("D", "F"), [(6, 10), (10, 6)])
def test_feed_forward_is_two_dense_layers_forward_and_backward(activation, D, F):
    shapes = {"wi_DF": (D, F), "bi_F": (F,), "wo_FD": (F, D), "bo_D": (D,)}
    params = {name: draw(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    x_BLD, weigh = draw(2, 5, D, seed=9), draw(2, 5, D, seed=10)
    module = FeedForward(F, activation)

    def ours(params, x_BLD):
        return (module.apply({"params": params}, x_BLD, train=False) * weigh).sum()

    def theirs(params, x_BLD):
        act = ACTIVATIONS[activation]
        inner = act(x_BLD @ params["wi_DF"] + params["bi_F"])
        return ((inner @ params["wo_FD"] + params["bo_D"]) * weigh).sum()

    with jax.default_matmul_precision("highest"):
        value, slopes = jax.value_and_grad(ours, (0, 1))(params, x_BLD)
    exact = jax.tree.map(lambda x: x.astype(np.float64), (params, x_BLD))
    np.testing.assert_allclose(value, theirs(*exact), rtol=1e-4)
    way = jax.tree.map(lambda x: np.random.default_rng(x.size).normal(0, 1, x.shape), exact)
    for name in (*shapes, "x"):
        only = jax.tree.map(np.zeros_like, way)
        only = ({**only[0], name: way[0][name]}, only[1]) if name != "x" else (only[0], way[1])
        ahead, behind = (
            theirs(*jax.tree.map(lambda x, d, s=s: x + s * 1e-6 * d, exact, only)) for s in (1, -1)
        )
        own = sum(jax.tree.leaves(jax.tree.map(lambda g, d: (g * d).sum(), slopes, only)))
        np.testing.assert_allclose(own, (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("inside", "after"), [(0.0, 0.5), (0.5, 0.0)])
def test_feed_forward_drops_inside_and_after_at_rates_of_their_own(inside, after):
    D, F = 12, 40
    params = {"wi_DF": draw(D, F), "bi_F": draw(F), "bo_D": np.zeros(D, np.float32)}
    params["wo_FD"] = np.eye(F, D, dtype=np.float32)  # so that out comes what is inside
    module = FeedForward(F, "gelu", after, inside)
    run = functools.partial(module.apply, {"params": params}, draw(9, 7, D, seed=3))
    whole = np.asarray(run(train=False))
    dropped = np.asarray(run(train=True, rngs={"dropout": jax.random.key(0)}))
    kept = dropped != 0
    assert 0.4 < kept.mean() < 0.6
    np.testing.assert_allclose(dropped[kept], 2 * whole[kept], rtol=1e-5)


def test_feed_forward_draws_one_mask_inside_and_another_after():
    D = 16
    eye, none = np.eye(D, dtype=np.float32), np.zeros(D, np.float32)
    params = {"wi_DF": eye, "bi_F": none, "wo_FD": eye, "bo_D": none}
    module = FeedForward(D, "relu", 0.5, 0.5)
    rngs = {"dropout": jax.random.key(0)}
    y = module.apply({"params": params}, jnp.ones((20, 10, D)), train=True, rngs=rngs)
    assert 0.2 < (y > 0).mean() < 0.3
