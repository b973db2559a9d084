"""The highest of all windows are Kim's, whose rows have zeros on either side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.backbones import text_cnn
from modules.layers.pooling import highest
from modules.masks import Mask
from tests.support.compiler import quick_jit
from tests.support.tiny_models import draw_params

V, D, L = 9, 3, 7
FILTERS = ((2, 3), (3, 2), (4, 4))
VALID_BL = np.arange(L) < np.array([[7], [1], [4]])
TOKENS_BL = np.where(VALID_BL, np.random.default_rng(0).integers(1, V, VALID_BL.shape), 0)


def model(**fields):
    return text_cnn.Backbone(**dict(V=V, D=D, filters=FILTERS) | fields)


def pooled(backbone, params, train=False):
    mask = Mask(valid_BL=VALID_BL)
    h_BLX = backbone.apply({"params": params}, TOKENS_BL, mask=mask, train=train).h
    return highest(h_BLX, jnp.asarray(VALID_BL))


def kim(activation, token_VD, kernels, bias_X):
    """Sentence by sentence and window by window, with four zeros on either side and more."""
    f = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[activation]
    rows = []
    for tokens_L, valid_L in zip(TOKENS_BL, VALID_BL, strict=True):
        x_LD = np.pad(token_VD[tokens_L[valid_L]], ((4, 8), (0, 0)))
        best = []
        for kernel_wDX in kernels:
            w = len(kernel_wDX)
            windows = [x_LD[i : i + w] for i in range(len(x_LD) - w + 1)]
            best.append(np.max([np.einsum("wD,wDX->X", x, kernel_wDX) for x in windows], 0))
        rows.append(f(np.concatenate(best) + bias_X))
    return np.stack(rows)


@pytest.mark.parametrize("activation", text_cnn.ACTIVATIONS)
def test_maxima_are_those_of_every_window_of_zeros_and_words(activation):
    backbone = model(activation=activation)
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape), draw_params(backbone))
    kernels = [params[f"kernel{w}_DX"] for w, _ in FILTERS]
    expected_BX = kim(activation, params["token_VD"], kernels, params["bias_X"])
    loss = lambda p: (jnp.sin(h_BX := pooled(backbone, p)).sum(), h_BX)  # noqa: E731
    grads, ours_BX = quick_jit(jax.grad(loss, has_aux=True))(params)
    np.testing.assert_allclose(ours_BX, expected_BX, atol=1e-5)
    assert not grads["token_VD"][0].any()  # what fills rows up


def test_noise_at_padding_reaches_no_word():
    backbone, mask = model(), Mask(valid_BL=VALID_BL)
    params = draw_params(backbone)
    noise_BLD = np.random.default_rng(2).normal(size=(*VALID_BL.shape, D))

    def read(noise_BLD):
        edit = lambda x_BLD: x_BLD + noise_BLD  # noqa: E731
        read = dict(mask=mask, edit=edit, train=False)
        return backbone.apply({"params": params}, TOKENS_BL, **read).h

    states_BLX = read(noise_BLD)
    np.testing.assert_array_equal(states_BLX, read(noise_BLD * VALID_BL[..., None]))
    assert not np.array_equal(states_BLX, read(0))


def test_filters_see_the_sum_of_both_tables_and_one_gets_no_gradient():
    both, one = model(tables=("learned", "fixed")), model()
    params = draw_params(both)
    summed = {name: x for name, x in params.items() if name != "fixed_VD"}
    summed["token_VD"] = params["token_VD"] + params["fixed_VD"]
    grads, ours = quick_jit(
        jax.grad(lambda p: (pooled(both, p).sum(), pooled(both, p)), has_aux=True)
    )(params)
    np.testing.assert_allclose(ours, quick_jit(lambda p: pooled(one, p))(summed), rtol=1e-5)
    assert not grads["fixed_VD"].any()
    assert grads["token_VD"].any()


def test_kim_s_network_has_its_parameters():
    backbone = text_cnn.Backbone(V=18_765)
    shapes = jax.eval_shape(
        lambda key: backbone.init(key, backbone.example(), mask=Mask(), train=False),
        jax.random.key(0),
    )
    count = sum(x.size for x in jax.tree.leaves(shapes))
    assert count == 18_765 * 300 + (3 + 4 + 5) * 300 * 100 + 300


def test_tables_that_there_are_not_are_refused():
    with pytest.raises(ValueError, match=r"tables=\('frozen',\): one of learned, fixed, or both"):
        model(tables=("frozen",))
