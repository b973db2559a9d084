"""The AWD-LSTM's layers, and what its dropouts drop."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import modules
from modules.masks import Mask
from tests.support import awd_lstm_original as original
from tests.support.compiler import quick_jit
from tests.support.jaxpr import scans_in
from tests.support.tiny_models import draw_params
from tests.support.xlnet_inputs import off

OFF = dict(dropoute=0.0, dropouti=0.0, dropouth=0.0, wdrop=0.0)
CAUSAL = Mask(is_causal=True)
TOKENS_BL = np.random.default_rng(0).integers(0, 23, (4, 7))


def build(**fields):
    return modules.build("awd_lstm", **dict(V=23, D=6, U=9) | OFF | fields)


def read(model, params, tokens_BL, *, train, **given):
    run = functools.partial(model.apply, mask=CAUSAL, train=train)
    rngs = {"dropout": jax.random.key(1)}
    return quick_jit(run)({"params": params}, tokens_BL, rngs=rngs, **given)


def test_states_of_two_windows_are_the_original_s_under_its_masks():
    arrays, model = original.read(), original.backbone(dtype="float64")
    params, _ = original.arrange_weights(arrays, "w")
    with jax.enable_x64(True):
        memory = model.initial_memory(4)
        for window in (0, 1):
            with original.recorded_masks(arrays, window):
                tokens_BL = arrays[f"x{window}"].T
                h_BLD, memory = read(model, params, tokens_BL, train=True, memory=memory)
            assert off(h_BLD, np.swapaxes(arrays[f"last{window}"], 0, 1)) < 1e-9
            offs = jax.tree.map(off, memory, original.arrange_states(arrays, window))
            assert max(jax.tree.leaves(offs)) < 1e-9, offs


def test_parameters_are_as_many_as_published_and_begin_as_pytorch_s():
    model = modules.build("awd_lstm", V=33_278)
    shapes = jax.eval_shape(
        functools.partial(model.init, mask=CAUSAL, train=False), jax.random.key(0), model.example()
    )["params"]
    # With the softmax's bias, as PyTorch counts them.
    assert sum(x.size for x in jax.tree.leaves(shapes)) + 33_278 == 33_556_078
    small = build(V=500, U=64, D=32)
    init = functools.partial(small.init, mask=CAUSAL, train=False)
    params = quick_jit(init)(jax.random.key(0), small.example())["params"]
    assert 0.098 < np.abs(params["token_VD"]).max() <= 0.1
    for n, width in enumerate((64, 64, 32)):
        for name, w in params[f"layer_{n}"].items():
            assert 0.9 < np.abs(w).max() * np.sqrt(width) <= 1, (n, name)
            assert np.std(w) * np.sqrt(3 * width) == pytest.approx(1, rel=0.1), (n, name)


def test_weight_drop_leaves_the_scan_as_it_is():
    shapes = []
    for model in (build(), build(wdrop=0.5)):

        def loss(params, model=model):
            given = dict(mask=CAUSAL, train=True, rngs={"dropout": jax.random.key(0)})
            return model.apply({"params": params}, TOKENS_BL, **given).h.sum()

        found = scans_in(jax.make_jaxpr(jax.grad(loss))(draw_params(model)).jaxpr)
        shapes.append([[str(v.aval) for v in (*x.invars, *x.outvars)] for x in found])
    assert len(shapes[0]) >= 6  # three layers, forwards and backwards
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize("pieces", [2, 3, 9])
def test_a_text_in_pieces_is_read_as_a_whole(pieces):
    documents_BL = np.repeat([[0, 0, 1, 1, 1, 2, 2]], 4, 0)
    mask = dataclasses.replace(CAUSAL, groups_BL=documents_BL)
    dropouts = dict(dropoute=0.2, dropouti=0.3, dropouth=0.4, wdrop=0.5)
    results = []
    for model in (build(**dropouts), build(pieces=pieces, **dropouts)):
        params, memory = draw_params(model), model.initial_memory(4)

        def loss(params, model=model, memory=memory):
            given = dict(mask=mask, train=True, rngs={"dropout": jax.random.key(0)}, memory=memory)
            output = model.apply({"params": params}, TOKENS_BL, **given)
            return (output.h**2).sum(), (output.h, output.memory)

        results.append(quick_jit(jax.value_and_grad(loss, has_aux=True))(params))
    offs = jax.tree.map(off, *results)
    assert max(jax.tree.leaves(offs)) < 1e-6, offs


def test_evaluation_drops_nothing():
    model = build(dropoute=0.5, dropouti=0.5, dropouth=0.5, wdrop=0.5)
    params = draw_params(model)
    dropped, whole = (read(x, params, TOKENS_BL, train=False).h for x in (model, build()))
    np.testing.assert_array_equal(dropped, whole)


def test_the_output_s_dropout_is_refused_as_a_field_of_the_model():
    with pytest.raises(ValueError, match="its objective the dropout of the last output"):
        build(dropout=0.4)
