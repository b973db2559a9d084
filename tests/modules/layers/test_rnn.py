"""What a loop over words in float64 computes, the layers compute."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers.rnn import Recurrent, State
from tests.support.compiler import quick_jit
from tests.support.jaxpr import scans_in
from tests.support.xlnet_inputs import off

B, L, X, U, D = 3, 5, 4, 6, 3
CLIPS = dict(clip_cell=0.5, clip_projection=0.2)
LAYERS = {
    "lstm": dict(cell="lstm"),
    "lstmp": dict(cell="lstm", D=D, **CLIPS),
    "lstm_free": dict(cell="lstm", D=D, forget_bias=0.0),
    "gru": dict(cell="gru"),
    "gru_paper": dict(cell="gru", reset_gate="before"),
    "gru_bare": dict(cell="gru", bias=False),
    "tanh": dict(cell="rnn"),
    "relu": dict(cell="rnn", activation="relu"),
}
LENGTHS = (5, 3, 4)
AT_THE_END = np.arange(L) < np.array(LENGTHS)[:, None]
AT_THE_BEGIN = AT_THE_END[:, ::-1]


def layer(name: str, Z: int = 2, **fields):
    return Recurrent(U, **LAYERS[name] | dict(Z=Z) | fields)


def draw_params(model, seed: int = 0, scale: float = 0.7):
    """Parameters, and a state, so large that everything matters and the clips are met."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 1, X)))["params"]
    params = jax.tree.map(lambda x: np.float32(rng.normal(0, scale, x.shape)), shapes)
    state = model.initial_state(B)
    return params, jax.tree.map(lambda x: np.float32(rng.normal(0, 0.3, x.shape)), state)


def draw_text(seed: int = 1, directions: int = 0):
    shape = (B, directions, L, X) if directions else (B, L, X)
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def forward(model, params, *args, **given):
    return model.apply({"params": params}, *args, **given)


run = quick_jit(forward, static_argnums=0)


# --- the loop over words -----------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def read_word(model, w, x, c, h):
    """The cells as their papers have them: (c, h) after a word."""
    b = w.get("b", 0 * w["wx"][0])
    a = [x @ w["wx"][:, gate] + b[gate] for gate in range(w["wx"].shape[1])]
    r = [h @ w["wh"][:, gate] for gate in range(len(a))]
    if model.cell == "rnn":
        return c, np.tanh(a[0] + r[0]) if model.activation == "tanh" else np.maximum(a[0] + r[0], 0)
    if model.cell == "gru":
        reset, update = sigmoid(a[0] + r[0]), sigmoid(a[1] + r[1])
        product = reset * (r[2] + w.get("bh", 0))
        if model.reset_gate == "before":
            product = (reset * h) @ w["wh"][:, 2]
        return c, update * h + (1 - update) * np.tanh(a[2] + product)
    i, j, f, o = (left + right for left, right in zip(a, r, strict=True))
    c = sigmoid(f + model.forget_bias) * c + sigmoid(i) * np.tanh(j)
    c = np.clip(c, -model.clip_cell, model.clip_cell) if model.clip_cell else c
    h = sigmoid(o) * np.tanh(c)
    if not model.D:
        return c, h
    h = h @ w["wp"]
    return c, np.clip(
        h, -model.clip_projection, model.clip_projection
    ) if model.clip_projection else h


def read_row(model, w, x_LX, state, order, valid_L, reset_L):
    """(y of each place, the state at the end) of one row, read in this order."""
    c, h = state
    y = {}
    for place in order:
        if reset_L[place]:
            c, h = c if c is None else 0 * c, 0 * h
        if valid_L[place]:
            c, h = read_word(model, w, x_LX[place], c, h)
        y[place] = h if valid_L[place] else 0 * h
    return np.stack([y[place] for place in range(len(x_LX))]), (c, h)


def read_rows(model, params, x, state, valid, reset):
    """What the layer returns, row by row, direction by direction and word by word."""
    one_text, Z = x.ndim == 3, model.Z
    y, cells, outputs = [], [], []
    for b in range(len(x)):
        rows = []
        for z in range(Z):
            w = {name.split("_")[0]: each[z] for name, each in params.items()}
            order = range(L)[::-1] if one_text and z else range(L)
            at = (b,) if one_text else (b, z)
            own = (None if state.c_BZU is None else state.c_BZU[b, z], state.h_BZD[b, z])
            rows.append(read_row(model, w, x[at], own, order, valid[at], reset[at]))
        y.append(np.stack([row for row, _ in rows], 1 if one_text else 0))
        cells.append([c for _, (c, _) in rows])
        outputs.append([h for _, (_, h) in rows])
    c_BZU = None if state.c_BZU is None else np.array(cells)
    return np.stack(y), State(np.array(outputs), c_BZU)


def masks(one_text: bool):
    rng = np.random.default_rng(2)
    if one_text:
        return AT_THE_END, rng.random((B, L)) < 0.3
    return np.stack([AT_THE_END, AT_THE_BEGIN], 1), rng.random((B, 2, L)) < 0.3


def wide(tree):
    return jax.tree.map(np.float64, tree)


@pytest.mark.parametrize(
    ("name", "one_text"), [*((name, True) for name in LAYERS), ("lstmp", False), ("gru", False)]
)
def test_outputs_and_states_are_those_of_a_loop_over_words(name, one_text):
    model = layer(name)
    params, state = draw_params(model)
    x, (valid, reset) = draw_text(directions=0 if one_text else 2), masks(one_text)
    y, new = run(model, params, x, state, valid=valid, reset=reset)
    given = (wide(params), wide(x), wide(state), valid, reset)
    expected, expected_state = read_rows(model, *given)
    assert off(y, expected) < 1e-6
    assert max(jax.tree.leaves(jax.tree.map(off, new, expected_state))) < 1e-6
    if model.clip_cell:
        assert 0.05 < np.mean(np.abs(expected) == model.clip_projection) < 0.8
        assert 0.05 < np.mean(np.abs(expected_state.c_BZU) == model.clip_cell) < 0.8


def weigh_outputs(y, new):
    """A number that depends on every output."""
    draws = np.random.default_rng(4)
    leaves = jax.tree.leaves((y, new))
    return sum((x * draws.normal(0, 1, x.shape)).sum() for x in leaves)


# --- padding, beginnings, states ---------------------------------------------------------------


def test_what_stands_in_the_padding_changes_nothing_at_all():
    model = layer("lstmp")
    (params, state), x_BLX = draw_params(model), draw_text()
    other_BLX = np.where(AT_THE_END[..., None], x_BLX, 1e6)

    def loss(x_BLX):
        out = forward(model, params, x_BLX, state, valid=AT_THE_END)
        return weigh_outputs(*out), out

    grads = quick_jit(jax.grad(loss, has_aux=True))
    jax.tree.map(np.testing.assert_array_equal, grads(x_BLX), grads(other_BLX))


# --- the ways to compute it --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lstmp", pytest.param("gru", marks=pytest.mark.slow)])
def test_bfloat16_is_near_float32(name):
    model = layer(name)
    (params, state), x_BLX = draw_params(model, scale=0.3), draw_text()

    def computed(dtype):
        def loss(params, x_BLX):
            out = forward(model.clone(dtype=dtype), params, x_BLX, state)
            return weigh_outputs(*out), out

        return quick_jit(jax.grad(loss, (0, 1), has_aux=True))(params, x_BLX)

    grads, (y, new) = computed("bfloat16")
    expected_grads, (expected, expected_new) = computed("float32")
    assert y.dtype == jnp.bfloat16
    assert all(each.dtype == jnp.float32 for each in jax.tree.leaves((new, grads)))
    assert off(y, np.float64(expected)) < 0.01
    offs = jax.tree.map(off, (new, grads), wide((expected_new, expected_grads)))
    assert max(jax.tree.leaves(offs)) < 0.05, offs


@pytest.mark.parametrize("name", ["lstmp", "gru", "tanh"])
def test_no_step_adds_up_the_gradient_of_a_weight(name):
    model = layer(name)
    (params, state), x_BLX = draw_params(model), draw_text()

    def loss(params):
        return weigh_outputs(*forward(model, params, x_BLX, state))

    found = scans_in(jax.make_jaxpr(jax.grad(loss))(params).jaxpr)
    assert len(found) >= 4  # forwards and backwards, for either way of taking the directions
    for scan in found:
        first, many = scan.params["num_consts"], scan.params["num_carry"]
        shapes = [x.aval.shape for x in scan.invars[first : first + many]]
        # Directions in one loop carry what it returns of all positions, too.
        carried = {shape[-2:] for shape in shapes if shape[1:3] != (L, B)}
        assert carried <= {(B, U), (B, D)}


# --- weights and fields ------------------------------------------------------------------------


def test_weights_begin_as_glorot_s_of_the_joined_product():
    model = Recurrent(64, D=32, Z=2)
    params = quick_jit(model.init)(jax.random.key(0), jnp.zeros((1, 1, 48)))["params"]
    shapes = {
        "wx_ZDGU": (2, 48, 4, 64),
        "wh_ZDGU": (2, 32, 4, 64),
        "b_ZGU": (2, 4, 64),
        "wp_ZUD": (2, 64, 32),
    }
    assert jax.tree.map(np.shape, params) == shapes
    bounds = {"wx_ZDGU": 48 + 32 + 256, "wh_ZDGU": 48 + 32 + 256, "wp_ZUD": 64 + 32}
    for name, size in bounds.items():
        bound = np.sqrt(6 / size)
        assert 0.98 * bound < np.abs(params[name]).max() <= bound
        assert np.std(params[name]) == pytest.approx(bound / np.sqrt(3), rel=0.02)
    np.testing.assert_array_equal(params["b_ZGU"], 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(cell="elman"), "cell='elman' is none of lstm, gru, rnn"),
        (dict(cell="gru", D=4), "cell='gru' has no projection and no clips"),
        (dict(cell="rnn", clip_cell=3.0), "cell='rnn' has no projection and no clips"),
        (dict(activation="gelu"), "activation='gelu' is none of tanh, relu"),
        (dict(reset_gate="never"), "reset_gate='never' is none of after, before"),
        (dict(initializer="torch", D=4), "initializer='torch' is of LSTMs without a projection"),
        (dict(Z=3), "Z=3 directions: there are 1 or 2"),
        (dict(dtype="int8"), "dtype='int8' is none of"),
    ],
)
def test_a_wrong_field_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        Recurrent(U, **fields)
