"""Softmax, dropout, norm, feed-forward and how weights begin."""

import functools
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from modules.kernels.softmax import softmax
from modules.layers import layer_stack
from modules.layers.dropout import Dropout
from modules.layers.feed_forward import FeedForward
from modules.layers.norm import Norm
from modules.layers.params import ACTIVATIONS as OURS
from modules.layers.params import ParamInfo, initializer, nn, param, recording, set_depths, zeros
from tests.support.xlnet_reference import gelu

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "fixtures" / "golden.json").read_text())


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


# --- softmax ---------------------------------------------------------------------------------


def masked():
    visible = np.random.default_rng(1).random((2, 1, 5, 7)) < 0.5
    visible[0, 0, 2] = False
    visible[1, 0, 3] = True
    return 20 * draw(2, 3, 5, 7), visible


def test_softmax_is_jax_s_where_something_is_visible_and_zero_where_nothing_is():
    scores, visible = masked()
    found = softmax(scores, visible)
    expected = jax.nn.softmax(scores, where=visible, axis=-1)
    sees = np.broadcast_to(visible.any(-1, keepdims=True), scores.shape)
    np.testing.assert_allclose(found[sees], expected[sees], atol=1e-6)
    assert not np.any(found[~sees])
    assert not np.any(found[~np.broadcast_to(visible, scores.shape)])


def test_softmax_has_the_gradient_of_the_plain_one():
    scores, visible = masked()
    weigh = draw(*scores.shape, seed=2)

    def plain(scores):
        p = jax.nn.softmax(jnp.where(visible, scores, -1e30), axis=-1)
        return (p * visible * visible.any(-1, keepdims=True) * weigh).sum()

    found = jax.grad(lambda s: (softmax(s, visible) * weigh).sum())(scores)
    np.testing.assert_allclose(found, jax.grad(plain)(scores), atol=1e-5)
    assert not np.any(found[~np.broadcast_to(visible, scores.shape)])


@pytest.mark.parametrize("size", [1e4, -1e4, 3e38])
def test_softmax_of_huge_scores_is_finite(size):
    found = softmax(np.array([[size, size, size / 2]], np.float32), np.array([[True, True, False]]))
    np.testing.assert_allclose(found, [[0.5, 0.5, 0]])


# --- dropout ---------------------------------------------------------------------------------


def dropped(x, key=0, rate=0.1):
    return Dropout(rate).apply({}, x, train=True, rngs={"dropout": jax.random.key(key)})


def kept(shape, key=0, rate=0.5):
    return np.asarray(dropped(jnp.ones(shape), key, rate) > 0)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_drops_its_share_and_scales_up_the_rest(rate):
    x = 1 + np.abs(draw(400, 500))
    y = np.asarray(dropped(x, rate=rate))
    share = (y == 0).mean()
    assert abs(share - rate) < 5 * math.sqrt(rate * (1 - rate) / x.size)
    np.testing.assert_allclose(y[y != 0], (x / (1 - rate))[y != 0], rtol=1e-6)


def test_dropout_rests_at_rate_zero_and_outside_training():
    x = draw(4, 5)
    np.testing.assert_array_equal(Dropout(0.5).apply({}, x, train=False), x)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, x, train=True), x)


def test_the_gradient_passes_exactly_where_the_value_did():
    x = 1 + np.abs(draw(50, 60))
    y, back = jax.vjp(lambda x: dropped(x, rate=0.4), x)
    np.testing.assert_array_equal(back(jnp.ones_like(x))[0] != 0, y != 0)
    np.testing.assert_allclose(back(x)[0], y, rtol=1e-6)


def test_one_key_gives_one_mask_and_another_key_another():
    assert (kept((40, 50), 3) == kept((40, 50), 3)).all()
    assert 0.4 < (kept((40, 50), 3) == kept((40, 50), 4)).mean() < 0.6


def test_no_two_masks_and_no_two_neighbours_go_together():
    masks = np.stack([kept((128, 128), key) for key in range(24)]) * 2.0 - 1
    limit = 5 / math.sqrt(masks[0].size)
    flat = masks.reshape(len(masks), -1)
    across_keys = flat @ flat.T / flat.shape[1] - np.eye(len(flat))
    assert np.abs(across_keys).max() < limit
    for mask in masks:
        for down, right in [(0, 1), (1, 0), (1, 1), (0, 2), (0, 64), (64, 0)]:
            a, b = mask[down:, right:], mask[: 128 - down, : 128 - right]
            assert abs((a * b).mean()) < limit * 1.5
    means = flat.mean(1) * math.sqrt(flat.shape[1])
    assert 0.6 < means.std() < 1.5  # as many masks are a little too full as chance has it


def test_the_mask_does_not_depend_on_where_the_array_lies():
    x = 1 + np.abs(draw(16, 24))
    alone = jax.jit(functools.partial(dropped, rate=0.5))(x)
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
    for spec in (P("a"), P("a", "b"), P(None, ("a", "b"))):
        spread = jax.device_put(x, NamedSharding(mesh, spec))
        assert len(spread.sharding.device_set) == 8
        np.testing.assert_array_equal(jax.jit(functools.partial(dropped, rate=0.5))(spread), alone)


# --- norm, feed-forward ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_norm_is_computed_in_float32(dtype):
    x = (100 + draw(3, 4, 16)).astype(dtype)
    scale_D, bias_D = draw(16, seed=1), draw(16, seed=2)
    y = Norm().apply({"params": {"scale_D": scale_D, "bias_D": bias_D}}, x)
    exact = np.asarray(x, np.float64)
    centred = exact - exact.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * scale_D + bias_D
    assert y.dtype == dtype
    np.testing.assert_allclose(
        np.asarray(y, np.float64), expected, atol=3e-5 if dtype == "float32" else 2e-2
    )


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


def test_the_two_gelus_differ_by_what_they_are_known_to():
    x = np.linspace(-6, 6, 20001)
    tanh, erf = (np.asarray(OURS[name](x)) for name in ("gelu", "gelu_erf"))
    np.testing.assert_allclose(tanh, gelu(x), atol=1e-6)
    assert abs(np.abs(tanh - erf).max() - GOLDEN["gelu_tanh_vs_erf_max_abs"]) < 1e-6


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


# --- how weights begin -----------------------------------------------------------------------


def test_initialisers_are_normal_truncated_or_not_or_uniform():
    key, shape = jax.random.key(0), (300, 300)
    x = np.asarray(initializer("normal", 0.02)(key, shape, jnp.float32))
    assert abs(x.std() / 0.02 - 1) < 0.01
    assert np.abs(x).max() > 3.5 * 0.02
    x = np.asarray(initializer("truncated", 0.02)(key, shape, jnp.float32))
    assert 1.99 * 0.02 < np.abs(x).max() <= 2 * 0.02 + 1e-7
    assert abs(x.std() / (0.87963 * 0.02) - 1) < 0.01  # as TensorFlow: 0.02 is before the cut
    x = np.asarray(initializer("uniform", 0.1)(key, shape, jnp.float32))
    assert 0.0999 < np.abs(x).max() <= 0.1
    assert abs(x.std() / (0.1 / math.sqrt(3)) - 1) < 0.01


def test_every_layer_of_a_stack_begins_differently():
    class Stack(nn.Module):
        @nn.compact
        def __call__(self, x):
            return layer_stack.init_layer_stack(
                self, "all", FeedForward(6, parent=None), 3, x, train=False
            )

    params = Stack().init(jax.random.key(0), jnp.ones((1, 1, 4)))["params"]["all"]
    assert params["wi_DF"].shape == (3, 4, 6)
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert not np.any(params["wi_DF"][i] == params["wi_DF"][j])


def test_a_tree_is_parted_along_its_first_dimension_with_the_gradient_of_slices():
    tree = {"a": draw(5, 3), "b": (draw(5), jax.random.split(jax.random.key(0), 5))}
    pieces = layer_stack.split_layers(tree, (0, 4, 1))
    for piece, (start, end) in zip(pieces, [(0, 0), (0, 4), (4, 5)], strict=True):
        expected = jax.tree.map(lambda x, s=start, e=end: x[s:e], tree)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), piece, expected))
        assert jax.tree.map(jnp.shape, piece) == jax.tree.map(jnp.shape, expected)
    slope = jax.grad(lambda a: (2 * layer_stack.split_layers(a, (4, 1))[0]).sum())(tree["a"])
    np.testing.assert_array_equal(slope, np.array([2, 2, 2, 2, 0])[:, None] + np.zeros((5, 3)))


# --- what a parameter is to an optimiser -----------------------------------------------------


class Plain(nn.Module):
    """Linen's own way to make parameters."""

    @nn.compact
    def __call__(self, x_BD):
        w_DD = self.param("w_DD", nn.initializers.ones, (3, 3))
        return x_BD @ w_DD + self.param("b_D", zeros, (3,))


class Deep(nn.Module):
    """An embedding; two layers of their own, in two ways; a stack of equal layers; and a head."""

    def setup(self):
        self.token_VD = param(self, "token_VD", zeros, (5, 3), decay=True, depth=0)
        self.first, self.second, self.head = Plain(), Plain(), Plain()
        set_depths(self, first=1, second=2)
        self.bias_D = param(self, "bias_D", zeros, (3,), decay=False)

    def __call__(self, tokens_B):
        x_BD = self.token_VD[tokens_B]
        return self.head(self.second(self.first(x_BD))) + self.bias_D


class Stacked(nn.Module):
    """Equal layers over an embedding, some of which Linen's scan stacks; it counts for itself."""

    below: nn.Module

    @nn.compact
    def __call__(self, tokens_B):
        x_BD = self.below(tokens_B)
        stack = layer_stack.init_layer_stack(self, "layers", Plain(parent=None), 2, x_BD)
        set_depths(self, scanned=range(1, 3))
        scan = nn.scan(
            lambda layer, x_BD, _: (layer(x_BD), None),
            variable_axes={"params": 0},
            split_rngs={"params": True},
            length=2,
        )
        return scan(Plain(name="scanned"), x_BD, None)[0] + stack["b_D"][0]


def told(model):
    with recording() as record:
        shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros(2, jnp.int32))["params"]
    return record.infos(shapes)


def test_parameters_are_as_deep_as_their_module_is_said_to_be():
    one = lambda above: {"w_DD": ParamInfo(True, above), "b_D": ParamInfo(False, above)}  # noqa: E731
    deep = dict(first=one(1), second=one(0), head=one(-1))
    deep |= dict(token_VD=ParamInfo(True, 2), bias_D=ParamInfo(False))
    assert told(Deep()) == deep
    stacks = dict.fromkeys(("layers", "scanned"), one((1, 0)))
    assert told(Stacked(Deep())) == {"below": deep, **stacks}


def test_nothing_is_recorded_of_what_is_made_outside():
    with recording() as record:
        pass
    told(Deep())
    assert not record.decay
    assert not record.depth
