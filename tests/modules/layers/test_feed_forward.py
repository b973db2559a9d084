"""Two dense layers and where they drop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers.feed_forward import FeedForward
from modules.layers.params import ACTIVATIONS
from tests.support.arrays import draw


def test_feed_forward_is_two_dense_layers():
    D, F = 6, 10
    shapes = {"wi_DF": (D, F), "bi_F": (F,), "wo_FD": (F, D), "bo_D": (D,)}
    p = {name: draw(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    x_BLD = draw(2, 5, D, seed=9)
    with jax.default_matmul_precision("highest"):
        found = FeedForward(F, "gelu").apply({"params": p}, x_BLD, train=False)
    inner = np.asarray(ACTIVATIONS["gelu"](x_BLD @ p["wi_DF"] + p["bi_F"]))
    np.testing.assert_allclose(found, inner @ p["wo_FD"] + p["bo_D"], atol=1e-5)


@pytest.mark.parametrize(
    ("inner", "after", "share"), [(0.0, 0.5, 0.5), (0.5, 0, 0.5), (0.5, 0.5, 0.25)]
)
def test_feed_forward_drops_by_masks_of_their_own_inside_and_after(inner, after, share):
    D = 16
    eye, zeros = np.eye(D, dtype=np.float32), np.zeros(D, np.float32)
    params = {
        "wi_DF": eye,
        "bi_F": zeros,
        "wo_FD": eye,
        "bo_D": zeros,
    }  # so that out comes what is in
    module = FeedForward(D, "relu", after, inner)
    rngs = {"dropout": jax.random.key(0)}
    y = module.apply({"params": params}, jnp.ones((20, 10, D)), train=True, rngs=rngs)
    assert abs((y > 0).mean() - share) < 0.05
    np.testing.assert_allclose(y[y > 0], 1 / share)
