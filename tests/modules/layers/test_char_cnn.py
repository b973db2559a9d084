"""Words from their characters as the formula has them, wherever they stand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers import char_cnn
from tests.support.arrays import draw_variables
from tests.support.char_windows import FILTERS, E, W, X, draw, window_by_window
from tests.support.compiler import quick_jit


def module(**fields):
    return char_cnn.CharCNN(**({"D": 4, "E": E, "filters": FILTERS} | fields))


def init(model, chars):
    """Parameters of which none is 0."""
    return draw_variables(model.init, jax.random.key(0), chars, scale=0.3)


def compute_words(params, chars_W, activation):
    """Computes a word in float64."""
    p = {name: np.asarray(x, np.float64) for name, x in params.items()}
    kernels = [p[f"kernel{w}_EX"] for w, _ in FILTERS]
    answers = window_by_window(p["character_E"], kernels, chars_W[None])
    x = np.concatenate([a.max(2)[0] for a in answers], -1)
    x = activation(x + np.concatenate([p[f"bias{w}_X"] for w, _ in FILTERS]))
    for n in range(2):
        gate = 1 / (1 + np.exp(-(x @ p["carry_XX"][n] + p["carry_X"][n])))
        new = np.maximum(x @ p["transform_XX"][n] + p["transform_X"][n], 0)
        x = gate * new + (1 - gate) * x
    return x @ p["projection_XD"] + p["projection_D"] if "projection_XD" in p else x


@pytest.mark.parametrize(("activation", "D"), [("relu", 4), ("tanh", X)])
def test_words_are_the_formula_s_and_are_projected_only_where_the_widths_differ(activation, D):
    chars = draw()[2]
    model = module(activation=activation, D=D)
    params = init(model, chars)["params"]
    with jax.default_matmul_precision("highest"):
        found = quick_jit(model.apply)({"params": params}, chars)
    assert ("projection_XD" in params) == (D != X)
    form = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[activation]
    np.testing.assert_allclose(found[1], compute_words(params, chars[1], form), atol=1e-5)


def test_a_word_is_the_same_wherever_it_stands():
    chars = draw(shape=(2, 1, 3))[2]
    model = module()
    params = init(model, chars)
    apply = quick_jit(model.apply)
    found = apply(params, chars)
    assert found.shape == (2, 1, 3, 4)
    alone = [apply(params, word) for word in chars.reshape(-1, W)]
    np.testing.assert_allclose(found.reshape(-1, 4), alone, atol=1e-6)


def test_half_precision_weights_give_half_precision_states_near_the_whole_ones():
    chars = draw()[2]
    params = init(module(), chars)

    def run(dtype):
        return quick_jit(module(dtype=dtype).apply)(params, chars)

    half, whole = run("bfloat16"), run("float32")
    assert half.dtype == jnp.bfloat16
    assert np.linalg.norm(half.astype(np.float32) - whole) < 0.02 * np.linalg.norm(whole)


def test_parameters_are_as_many_and_as_large_as_elmo_s():
    model = char_cnn.CharCNN(D=512)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 50), jnp.int32))["params"]
    X = 2048
    convolved = sum(w * 16 * many + many for w, many in char_cnn.ELMO)
    expected = 261 * 16 + convolved + 2 * 2 * (X * X + X) + X * 512 + 512
    assert sum(x.size for x in jax.tree.leaves(shapes)) == expected


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_parameters_begin_as_the_original_s(activation):
    model = char_cnn.CharCNN(D=50, filters=((2, 300), (3, 100)), activation=activation)
    p = quick_jit(model.init)(jax.random.key(0), np.zeros((1, W), int))["params"]
    deviation = {"relu": 0.05 / 3**0.5, "tanh": 1 / (2 * 16) ** 0.5}[activation]
    np.testing.assert_allclose(p["kernel2_EX"].std(), deviation, rtol=0.05)
    assert (np.abs(p["kernel2_EX"]).max() <= 0.05) == (activation == "relu")
    np.testing.assert_allclose(p["character_E"].std(), 1 / 3**0.5, rtol=0.05)
    assert np.abs(p["character_E"]).max() <= 1
    for name in ("carry_XX", "transform_XX", "projection_XD"):
        np.testing.assert_allclose(p[name].std(), 1 / 400**0.5, rtol=0.05)
    assert (p["carry_X"] == -2).all()
    zeros = ("bias2_X", "transform_X", "projection_D")
    assert not any(p[name].any() for name in zeros)


def test_flops_are_two_for_each_weight_at_each_place_it_is_used():
    model = module()
    convolved = sum(2 * w * E * many * (W - w + 1) for w, many in FILTERS)
    assert model.flops(W) == convolved + 2 * 2 * (2 * X * X) + 2 * X * 4
    assert module(D=X, highways=0).flops(W) == convolved


def test_short_words_and_unknown_activations_are_refused():
    with pytest.raises(ValueError, match=r"filters=.*4 wide.*W=3"):
        module().init(jax.random.key(0), np.zeros((1, 3), int))
    with pytest.raises(ValueError, match="activation='gelu'"):
        module(activation="gelu").init(jax.random.key(0), np.zeros((1, W), int))
