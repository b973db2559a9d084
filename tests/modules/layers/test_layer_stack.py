"""Layers stacked along a first dimension, and split again."""

import jax
import jax.numpy as jnp
import numpy as np

from modules.layers import layer_stack
from modules.layers.feed_forward import FeedForward
from modules.layers.params import nn
from tests.support.arrays import draw
from tests.support.compiler import quick_jit


def test_every_layer_of_a_stack_begins_differently():
    class Stack(nn.Module):
        @nn.compact
        def __call__(self, x):
            return layer_stack.init_layer_stack(
                self, "all", FeedForward(6, parent=None), 3, x, train=False
            )

    params = quick_jit(Stack().init)(jax.random.key(0), jnp.ones((1, 1, 4)))["params"]["all"]
    assert params["wi_DF"].shape == (3, 4, 6)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert not np.any(params["wi_DF"][i] == params["wi_DF"][j])


def test_a_tree_splits_along_its_first_dimension_with_slices_gradient():
    tree = {"a": draw(5, 3), "b": (draw(5), jax.random.split(jax.random.key(0), 5))}
    pieces = layer_stack.split_layers(tree, (0, 4, 1))
    for piece, (start, end) in zip(pieces, [(0, 0), (0, 4), (4, 5)], strict=True):
        expected = jax.tree.map(lambda x, s=start, e=end: x[s:e], tree)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), piece, expected))
        assert jax.tree.map(jnp.shape, piece) == jax.tree.map(jnp.shape, expected)
    grads = jax.grad(lambda a: (2 * layer_stack.split_layers(a, (4, 1))[0]).sum())(tree["a"])
    np.testing.assert_array_equal(grads, np.array([2, 2, 2, 2, 0])[:, None] + np.zeros((5, 3)))
