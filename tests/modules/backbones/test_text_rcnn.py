"""A state is its word between two contexts that have not read the word itself."""

import jax
import numpy as np
import pytest

from modules.backbones import text_rcnn
from modules.masks import Mask
from tests.support.compiler import quick_jit
from tests.support.tiny_models import draw_params

V, D, U, F, L = 9, 3, 4, 5, 6
VALID_BL = np.arange(L) < np.array([[6], [1], [3]])
TOKENS_BL = np.random.default_rng(0).integers(0, V, VALID_BL.shape)


def model(**fields):
    return text_rcnn.Backbone(**dict(V=V, D=D, U=U, F=F) | fields)


def states(backbone, params, valid_BL=VALID_BL, tokens_BL=TOKENS_BL):
    return backbone.apply(
        {"params": params}, tokens_BL, mask=Mask(valid_BL=valid_BL), train=False
    ).h


def lai(token_VD, end_ZU, wx_ZDU, wh_ZUU, w_DF, bias_F):
    """The paper's equations 1 to 4, text by text."""
    h_BLF = np.zeros((*VALID_BL.shape, F))
    for b, n in enumerate(VALID_BL.sum(1)):
        e = token_VD[TOKENS_BL[b, :n]]
        left, right = [end_ZU[0]], [end_ZU[1]]
        for i in range(1, n):
            left.append(np.tanh(left[-1] @ wh_ZUU[0] + e[i - 1] @ wx_ZDU[0]))
            right.append(np.tanh(right[-1] @ wh_ZUU[1] + e[n - i] @ wx_ZDU[1]))
        x = np.concatenate([left, e, right[::-1]], 1)
        h_BLF[b, :n] = np.tanh(x @ w_DF + bias_F)
    return h_BLF


def test_states_are_those_of_the_equations():
    backbone = model()
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(0, 0.5, x.shape), draw_params(backbone))
    cell = params["contexts"]
    assert set(cell) == {"wx_ZDGU", "wh_ZDGU"}  # no bias
    inner = cell["wx_ZDGU"][:, :, 0], cell["wh_ZDGU"][:, :, 0]
    rest = params["end_ZU"], *inner, params["w_DF"], params["bias_F"]
    ours = quick_jit(lambda p: states(backbone, p))(params)
    np.testing.assert_allclose(ours, lai(params["token_VD"], *rest), atol=1e-5)


@pytest.mark.parametrize("cell", ["rnn", "lstm"])
def test_contexts_have_no_gradient_to_the_word_itself(cell):
    backbone, valid_BL = model(cell=cell), np.ones((1, L), bool)
    params = draw_params(backbone)
    params["w_DF"] = params["w_DF"].at[U : U + D].set(0)  # the word's own way into its state
    tokens_BL, place = np.arange(L)[None], 2  # every word once
    state = lambda p: states(backbone, p, valid_BL, tokens_BL)[0, place].sum()  # noqa: E731
    grads = quick_jit(jax.grad(state))(params)
    found = np.abs(grads["token_VD"]).max(1)
    assert found[place] == 0
    assert found[[1, 3]].min() > 0
