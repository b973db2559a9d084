"""Directions are merged as the papers say, and dropped out where they say."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.backbones import recurrent, text_mask
from modules.masks import Mask
from tests.support.compiler import quick_jit
from tests.support.differences import numeric_gradients
from tests.support.tiny_models import drawn
from tests.support.xlnet_inputs import off

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
def test_merges_and_their_gradients_are_numpy_s(merge):
    h_BLZU = np.random.default_rng(1).normal(size=(2, 3, 2, 4))
    h_BLZU[0, 0, 0] = 0  # a product has a gradient there, too
    with jax.enable_x64(True):
        ours = recurrent.MERGES[merge](jnp.asarray(h_BLZU))
        grads = jax.grad(lambda h: jnp.sin(recurrent.MERGES[merge](h)).sum())(h_BLZU)
    np.testing.assert_allclose(ours, NUMPY[merge](h_BLZU), atol=1e-12)
    (expected,) = numeric_gradients(lambda h: np.sin(NUMPY[merge](h)).sum(), h_BLZU)
    np.testing.assert_allclose(grads, expected, atol=1e-8)


def test_dropout_is_of_outputs_or_of_each_direction_s_inputs():
    fields = dict(cell="rnn", activation="relu", rnn_dropout=0.5, merge="concat", D=40, U=40)
    at_output, at_input = (model(**fields, rnn_dropout_at=site) for site in ("output", "input"))
    params = drawn(at_output)
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
    params = drawn(backbone)
    groups_BL = np.repeat([[1, 1, 2, 2, 2, 3]], 3, 0)
    apply = quick_jit(functools.partial(backbone.apply, {"params": params}, train=False))
    whole = apply(TOKENS_BL, mask=Mask(is_causal=True, groups_BL=groups_BL)).h
    second = apply(TOKENS_BL[:, 2:5], mask=Mask(is_causal=True)).h
    np.testing.assert_allclose(whole[:, 2:5], second, rtol=1e-5)
    first = apply(TOKENS_BL[:, :3], mask=Mask(is_causal=True))
    rest = apply(TOKENS_BL[:, 3:], mask=Mask(is_causal=True), memory=first.memory).h
    at_once = apply(TOKENS_BL, mask=Mask(is_causal=True)).h
    np.testing.assert_allclose(at_once[:, 3:], rest, rtol=1e-5)


@pytest.mark.parametrize("merge", recurrent.MERGES)
@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
def test_states_and_gradients_are_pytorch_s_of_packed_sequences(torch, cell, merge):
    torch.manual_seed(0)
    kind = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell]
    embedding, layer = torch.nn.Embedding(V, D), kind(D, U, batch_first=True, bidirectional=True)
    weights = {"token": embedding.weight, **dict(layer.named_parameters())}
    tokens = torch.from_numpy(TOKENS_BL)
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        embedding(tokens), torch.from_numpy(LENGTHS), batch_first=True, enforce_sorted=False
    )
    h, _ = torch.nn.utils.rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)
    h = h.reshape(*TOKENS_BL.shape, 2, U)
    theirs = {
        "sum": lambda: h.sum(2),
        "mean": lambda: h.mean(2),
        "mul": lambda: h.prod(2),
        "concat": lambda: h.reshape(*TOKENS_BL.shape, 2 * U),
    }[merge]()
    weigh = np.random.default_rng(5).normal(size=theirs.shape).astype("f")
    (theirs * torch.from_numpy(weigh)).sum().backward()
    order = {"rnn": (0,), "gru": (0, 1, 2), "lstm": (0, 2, 1, 3)}[cell]

    def gates(get, name):
        both = [get(weights[f"{name}_l0{end}"]) for end in ("", "_reverse")]
        return np.stack([x.reshape(len(order), U, *x.shape[1:])[list(order)] for x in both])

    def arrange(get, share):
        b = {k: gates(get, f"bias_{k}h") for k in "ih"}
        own = {
            f"w{ours}_ZDGU": np.moveaxis(gates(get, f"weight_{k}h"), -1, 1)
            for ours, k in (("x", "i"), ("h", "h"))
        }
        own["b_ZGU"] = (b["i"] + b["h"]) * share
        if cell == "gru":  # the candidate's two biases stand inside and outside of the reset
            own["b_ZGU"][:, 2], own["bh_ZU"] = b["i"][:, 2], b["h"][:, 2]
        if cell == "lstm":
            own["b_ZGU"][:, 2] -= 1.0 if share == 1 else 0  # ours adds a forget bias
        return {"token_VD": get(weights["token"]), "layer_0": own}

    params = arrange(lambda x: x.detach().numpy().copy(), 1)
    expected = arrange(lambda x: x.grad.numpy().copy(), 0.5)  # both biases have one gradient

    def loss(params):
        h_BLD = states(model(cell=cell, merge=merge), False, params)
        return (h_BLD * weigh).sum(), h_BLD

    (_, ours), grads = quick_jit(jax.value_and_grad(loss, has_aux=True))(params)
    assert off(ours, theirs.detach().numpy()) < 1e-6
    offs = jax.tree.map(off, grads, expected)
    assert max(jax.tree.leaves(offs)) < 1e-5, offs
