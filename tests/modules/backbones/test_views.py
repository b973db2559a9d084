"""Views are read together as they would be read apart."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from modules.backbones import text_mask
from modules.backbones.views import encode_views
from modules.layers.augmentations import View
from tests.support.compiler import quick_jit

VALID_BL = jnp.arange(6) < jnp.array([[6], [4]])
ORDER_BL = jnp.array([[3, 0, 5, 1, 4, 2], [2, 0, 3, 1, 4, 5]])
TOKENS_BL = jnp.array([[1, 2, 3, 4, 5, 6], [7, 8, 9, 1, 0, 0]])
BACKBONES = {  # with positions, and without
    "transformer": dict(N=1, H=2, K=4, F=12, L=8, dropout=0.0, attention_dropout=0.0),
    "recurrent": dict(U=8, Z=2),
}


@pytest.mark.parametrize("name", BACKBONES)
def test_each_view_is_what_the_backbone_makes_of_it_alone(name):
    backbone = modules.build(name, V=13, D=8, **BACKBONES[name])
    mask = text_mask(backbone, valid_BL=VALID_BL)
    init = functools.partial(backbone.init, mask=mask, train=False)
    params = quick_jit(init)(jax.random.key(0), TOKENS_BL)
    keep = jnp.arange(8)[None, None] != 3
    views = [View(VALID_BL, order_BL=ORDER_BL), View(VALID_BL, keep=keep), View(VALID_BL)]

    @quick_jit
    def read(params):
        bound = backbone.bind(params)
        h_BLD, valid_BL = encode_views(bound, TOKENS_BL, views, train=False)
        given = dict(mask=mask, train=False)
        if name == "transformer":
            moved = bound(TOKENS_BL, positions_BL=ORDER_BL, **given).h
        else:  # as if the words stood where their positions say
            back_BL = jnp.argsort(ORDER_BL, 1)
            moved = bound(jnp.take_along_axis(TOKENS_BL, back_BL, 1), **given).h
            moved = jnp.take_along_axis(moved, ORDER_BL[..., None], 1)
        cut = bound(TOKENS_BL, edit=lambda x_BLD: x_BLD * keep, **given).h
        return h_BLD, valid_BL, [moved, cut, bound(TOKENS_BL, **given).h]

    h_BLD, valid_BL, apart = read(params)
    np.testing.assert_array_equal(valid_BL, np.repeat(VALID_BL, 3, 0))
    for number, one_BLD in enumerate(apart):
        np.testing.assert_allclose(
            h_BLD[number::3][VALID_BL], one_BLD[VALID_BL], rtol=1e-4, atol=1e-5
        )
    assert not np.allclose(apart[0], apart[2], atol=1e-3)
