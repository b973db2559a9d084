"""Directions are merged as the papers say, and dropped out where they say."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.backbones import recurrent, text_mask
from modules.layers.rnn import Recurrent
from modules.masks import Mask
from tests.support.compiler import quick_jit
from tests.support.tiny_models import draw_params

V, D, U, L = 11, 4, 5, 6
LENGTHS = np.array([6, 2, 4])
VALID_BL = np.arange(L) < LENGTHS[:, None]
TOKENS_BL = np.random.default_rng(0).integers(0, V, VALID_BL.shape)
NUMPY = {
    "sum": lambda h_BLZU: h_BLZU[:, :, 0] + h_BLZU[:, :, 1],
    "mean": lambda h_BLZU: (h_BLZU[:, :, 0] + h_BLZU[:, :, 1]) / 2,
    "mul": lambda h_BLZU: h_BLZU[:, :, 0] * h_BLZU[:, :, 1],
    "concat": lambda h_BLZU: np.concatenate([h_BLZU[:, :, 0], h_BLZU[:, :, 1]], -1),
}


def model(**fields):
    return recurrent.Backbone(**dict(V=V, D=D, U=U) | fields)


def states(backbone, train, params):
    mask, rngs = text_mask(backbone, valid_BL=VALID_BL), {"dropout": jax.random.key(0)}
    return backbone.apply({"params": params}, TOKENS_BL, mask=mask, train=train, rngs=rngs).h


def read(backbone, params, train=False):
    return quick_jit(functools.partial(states, backbone, train))(params)


@pytest.mark.parametrize("merge", recurrent.MERGES)
def test_every_layer_reads_the_merged_directions_beneath_it(merge):
    backbone = model(merge=merge, N=2)
    params = draw_params(backbone)
    expected_BLD = params["token_VD"][TOKENS_BL]
    for n in range(2):
        layer = {"params": params[f"layer_{n}"]}
        h_BLZU, _ = quick_jit(Recurrent(U, Z=2).apply)(layer, expected_BLD, valid=VALID_BL)
        expected_BLD = NUMPY[merge](h_BLZU)
    np.testing.assert_allclose(read(backbone, params), expected_BLD, atol=1e-6)


def test_a_product_has_a_gradient_where_a_direction_is_zero():
    h_BLZU = jnp.array([0.0, 3.0]).reshape(1, 1, 2, 1)
    grad_BLZU = jax.grad(lambda h_BLZU: recurrent.MERGES["mul"](h_BLZU).sum())(h_BLZU)
    np.testing.assert_array_equal(grad_BLZU.ravel(), [3, 0])


def test_dropout_is_of_outputs_or_of_each_direction_s_inputs():
    fields = dict(cell="rnn", activation="relu", rnn_dropout=0.5, merge="concat", D=40, U=40)
    at_output, at_input = (model(**fields, rnn_dropout_at=site) for site in ("output", "input"))
    params = draw_params(at_output)
    whole = read(at_output, params)[VALID_BL]
    dropped = read(at_output, params, train=True)[VALID_BL]
    np.testing.assert_allclose(dropped[dropped != 0], 2 * whole[dropped != 0], rtol=1e-5)
    assert 0.4 < np.mean(dropped[whole > 0] == 0) < 0.6
    seen = jax.tree.map(jnp.zeros_like, params)  # states are what a position reads itself
    seen["token_VD"] = jnp.ones((V, 40))
    seen["layer_0"]["wx_ZDGU"] = jnp.tile(jnp.eye(40)[None, :, None], (2, 1, 1, 1))
    h_BLZU = read(at_input, seen, train=True).reshape(*VALID_BL.shape, 2, 40)[VALID_BL]
    assert set(np.unique(h_BLZU)) == {0.0, 2.0}
    assert 0.4 < np.mean(h_BLZU[:, 0] == h_BLZU[:, 1]) < 0.6  # drawn anew for each direction


def test_documents_of_a_row_are_read_apart_from_left_to_right():
    backbone = model(Z=1, N=2)
    params = draw_params(backbone)
    groups_BL = np.repeat([[1, 1, 2, 2, 2, 3]], 3, 0)
    apply = quick_jit(functools.partial(backbone.apply, {"params": params}, train=False))
    whole = apply(TOKENS_BL, mask=Mask(is_causal=True, groups_BL=groups_BL)).h
    second = apply(TOKENS_BL[:, 2:5], mask=Mask(is_causal=True)).h
    np.testing.assert_allclose(whole[:, 2:5], second, rtol=1e-5)
    first = apply(TOKENS_BL[:, :3], mask=Mask(is_causal=True))
    rest = apply(TOKENS_BL[:, 3:], mask=Mask(is_causal=True), memory=first.memory).h
    at_once = apply(TOKENS_BL, mask=Mask(is_causal=True)).h
    np.testing.assert_allclose(at_once[:, 3:], rest, rtol=1e-5)
