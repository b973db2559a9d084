"""ELMo's sizes, directions, padding and dropout."""

import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from modules.backbones import text_mask
from modules.heads import language_model
from modules.masks import Mask
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

GOLDEN = json.loads((pathlib.Path(__file__).parents[2] / "fixtures" / "golden.json").read_text())
B, L, V = 3, 6, 11
SIZES = dict(V=V, D=4, U=6, N=2, inputs="words", dropout=0.0)
SPELLED = dict(inputs="characters", E=3, filters=((1, 2), (2, 3)), highways=1, W=5)
VALID_BL = np.arange(L) < [[6], [3], [4]]
CAUSAL = Mask(is_causal=True)


def tiny(**fields):
    return modules.build("elmo", **SIZES | fields)


def shapes(model, each=False):
    tokens, mask = model.example(), text_mask(model)
    if each:  # a text for each direction
        tokens, mask = jnp.stack([tokens] * model.Z, 1), CAUSAL
    make = lambda: model.init(jax.random.key(0), tokens, mask=mask, train=False)  # noqa: E731
    return jax.eval_shape(make)["params"]


def draw_params(model, seed: int = 0, scale: float = 0.7):
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: np.float32(rng.normal(0, scale, x.shape)), shapes(model))


def tokens(model, *shape, seed: int = 1):
    characters = model.inputs == "characters"
    rng = np.random.default_rng(seed)
    return rng.integers(0, 261 if characters else V, shape + (model.W,) * characters)


def call(model, params, *args, **given):
    return model.apply({"params": params}, *args, **given)


run = quick_jit(call, static_argnums=0, static_argnames=("method", "train"))


def read(model, params, text, valid_BL=None, method=None, **given):
    """States of a text read in all directions, of every layer or of the last."""
    given = given or ({} if method else {"train": False})
    return run(
        model, params, text, mask=text_mask(model, valid_BL=valid_BL), method=method, **given
    ).h


def read_each(model, params, tokens_BZL, **given):
    """Output of a text for each direction."""
    return run(model, params, tokens_BZL, **{"mask": CAUSAL, "train": False, **given})


def counted(tree):
    return sum(math.prod(x.shape) for x in jax.tree.leaves(tree))


# --- parameters ------------------------------------------------------------------------------


def test_the_parameter_counts_are_the_published_ones():
    golden = GOLDEN["params_elmo"]
    encoder = shapes(modules.build("elmo"))
    assert counted(encoder) == golden["encoder"] == 93_600_848
    assert counted(encoder["layers"]) == 2 * 2 * golden["per_cell"]
    words = modules.build("elmo", V=793_471)
    assert counted(shapes(words)) == counted(encoder)
    head = language_model.build(words, tied=False, bias=True)
    softmax = jax.eval_shape(head.init, jax.random.key(0))
    assert counted(softmax) == golden["softmax"] == 407_050_623


@pytest.mark.parametrize("fields", [dict(Z=1), SPELLED | dict(V=0)])
def test_every_method_makes_the_same_parameters(fields):
    model = tiny(**fields)
    made, other = shapes(model), shapes(model, each=True)
    assert jax.tree.map(np.shape, made) == jax.tree.map(np.shape, other)
    assert ("token_VD" in made) == (model.inputs == "words")


def test_weights_begin_as_the_original_s():
    model = tiny(V=400, D=16, U=32)
    init = quick_jit(model.init, static_argnames="train")
    mask = text_mask(model)
    params = init(jax.random.key(0), model.example(), mask=mask, train=False)["params"]
    token_VD, cells = params["token_VD"], params["layers"]
    assert 0.99 < np.abs(token_VD).max() <= 1
    assert np.std(token_VD) == pytest.approx(1 / np.sqrt(3), rel=0.03)
    assert cells["wx_ZDGU"].shape == (2, 2, 16, 4, 32)
    assert not np.array_equal(cells["wx_ZDGU"][0], cells["wx_ZDGU"][1])
    bound = np.sqrt(6 / (16 + 16 + 4 * 32))
    assert 0.98 * bound < np.abs(cells["wh_ZDGU"]).max() <= bound


# --- directions and padding --------------------------------------------------------------------


def test_a_padded_row_gives_what_the_row_alone_gives():
    model = tiny(**SPELLED)
    params, text = draw_params(model), tokens(model, B, L)
    h_NBLD = read(model, params, text, VALID_BL, "layer_states")
    np.testing.assert_array_equal(h_NBLD[:, ~VALID_BL], 0)
    alone = read(model, params, text[1:2, :3], method="layer_states")
    np.testing.assert_allclose(h_NBLD[:, 1, :3], alone[:, 0], rtol=2e-6, atol=1e-6)


def test_no_direction_sees_what_it_has_not_read():
    model = tiny(V=L)
    params = draw_params(model)

    def states(token_VD):
        """Of a text of L different words."""
        changed = params | {"token_VD": token_VD}
        return call(model, changed, jnp.arange(L)[None], mask=Mask(), train=False).h[0]

    slopes = quick_jit(jax.jacrev(states))(params["token_VD"])  # [L, 2D, L, D]
    seen = np.abs(slopes).max(-1).reshape(L, 2, model.D, L).max(2)
    later = np.triu(np.ones((L, L), bool), 1)
    np.testing.assert_array_equal(seen[:, 0] > 0, ~later)
    np.testing.assert_array_equal(seen[:, 1] > 0, ~later.T)


@pytest.mark.parametrize("fields", [{}, SPELLED | dict(residual=False), dict(Z=1)])
def test_a_text_read_in_both_directions_is_each_direction_s_own_reading(fields):
    model = tiny(**fields)
    params, text = draw_params(model), tokens(model, B, L)
    h_NBLD = read(model, params, text, method="layer_states")
    last_BLD = read(model, params, text)
    np.testing.assert_array_equal(h_NBLD[-1], last_BLD)
    own = np.stack([text, text[:, ::-1]][: model.Z], 1)
    h_BZLD, _ = read_each(model, params, own)
    np.testing.assert_allclose(h_NBLD[-1, ..., :4], h_BZLD[:, 0], rtol=2e-6, atol=1e-6)
    if model.Z == 2:
        np.testing.assert_allclose(h_NBLD[-1, ..., 4:], h_BZLD[:, 1, ::-1], rtol=2e-6, atol=1e-6)
        np.testing.assert_array_equal(h_NBLD[0, ..., :4], h_NBLD[0, ..., 4:])
    if model.inputs == "words":
        np.testing.assert_array_equal(h_NBLD[0, ..., :4], params["token_VD"][text])


def test_states_end_where_a_text_begins():
    model = tiny()
    params, text = draw_params(model), tokens(model, B, 2, 2 * L)
    _, memory = read_each(model, params, text[:, :, :L])
    assert memory.c_BZU.shape == (2, B, 2, model.U)
    assert memory.h_BZD.shape == (2, B, 2, model.D)
    groups_BZL = np.zeros((B, 2, L), int)
    groups_BZL[1] = 1
    mask = Mask(is_causal=True, groups_BL=groups_BZL)
    second, _ = read_each(model, params, text[:, :, L:], memory=memory, mask=mask)
    alone, _ = read_each(model, params, text[:, :, L:])
    np.testing.assert_allclose(second[1], alone[1], rtol=2e-6, atol=1e-7)
    assert off(second[0], alone[0]) > 1e-3


# --- dropout -----------------------------------------------------------------------------------


def test_the_residual_adds_the_input_as_it_was_dropped_out():
    """A last layer that gives nothing: what is left has gone through two masks, not one."""
    model = tiny(D=32, dropout=0.5)
    params = draw_params(model, scale=0.3)
    params["layers"]["wp_ZUD"][1] = 0
    args = (tokens(model, B, 2, L),)
    rngs = {"dropout": jax.random.key(0)}
    dropped, _ = read_each(model, params, *args, train=True, rngs=rngs)
    assert np.mean(dropped == 0) == pytest.approx(0.75, abs=0.04)
    gone_BLD = np.asarray(dropped[:, 0] == 0)
    assert not np.array_equal(gone_BLD[:, 0], gone_BLD[:, 1])  # a mask for each position
    undropped, _ = read_each(model, params, *args, rngs=rngs)
    assert np.mean(undropped == 0) == 0


def test_encoding_drops_nothing_after_the_last_layer():
    model = tiny(D=32, dropout=0.5)
    args = (draw_params(model), tokens(model, B, L))
    rngs = {"dropout": jax.random.key(0)}
    h_BLD, other = (read(model, *args, train=train, rngs=rngs) for train in (True, False))
    assert off(h_BLD, np.float64(other)) > 0.1
    assert np.mean(h_BLD == 0) < 0.6  # of the residual, and not of a half of everything


# --- cost, types, machines ---------------------------------------------------------------------


def test_the_original_s_step_costs_what_was_counted_by_hand():
    """Millions a word: CNN 53, highways 101 and projection 6 either way; LSTMs 453, softmax 50."""
    model = modules.build("elmo")
    assert model.flops(1, 1, 1) == pytest.approx((2 * (53 + 101 + 6) + 453) * 1e6, rel=2e-3)
    assert model.flops(2, 3, 3) == pytest.approx(6 * model.flops(1, 1, 1))
    words = modules.build("elmo", inputs="words", V=10)
    assert words.flops(1, 1, 1) == pytest.approx(453e6, rel=2e-3)
    assert language_model.build(words).flops(2, 8192) == pytest.approx(50e6, rel=1e-2)


def test_bfloat16_is_near_float32():
    model = tiny(**SPELLED)
    args = (draw_params(model, scale=0.3), tokens(model, B, 2, L))
    expected, _ = read_each(model, *args)
    h_BZLD, memory = read_each(model.clone(dtype="bfloat16"), *args)
    assert h_BZLD.dtype == jnp.bfloat16
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(memory))
    assert off(h_BZLD, np.float64(expected)) < 0.02


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(inputs="letters"), "inputs='letters' is none of characters, words"),
        (dict(V=0), "inputs='words' needs V"),
        (dict(Z=0), "Z=0 directions: there are 1 or 2"),
        (dict(activation="gelu"), "activation='gelu' is none of"),
    ],
)
def test_a_wrong_field_is_named(fields, message):
    with pytest.raises(ValueError, match=message):
        tiny(**fields)
