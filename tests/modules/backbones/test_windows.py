"""Rows read by windows are rows read at once, under a band."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import modules
from modules.backbones import init_params, text_mask
from modules.backbones.windows import encode_chunks, encode_windows
from modules.layers.pooling import keep_last
from modules.masks import Mask
from tests.support import xlnet_reference as reference
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import backbone


def test_windows_with_memory_are_the_whole_row_under_a_band():
    cfg = reference.Config(n_token=40, n_layer=3, mem_len=6, reuse_len=2)
    params = reference.ours(reference.random_weights(cfg, 2), cfg)
    rng, L = np.random.default_rng(0), 4
    tokens_BL, segments_BL = rng.integers(0, 40, (2, 12)), rng.integers(0, 2, (2, 12))
    valid_BL = np.arange(12) >= np.array([[0], [5]])
    call = functools.partial(backbone(cfg).apply, train=False, segments_BL=segments_BL)
    begin_L, key_L = np.arange(12) // L * L, np.arange(12)
    near = (key_L >= begin_L[:, None] - 6) & (key_L < begin_L[:, None] + L)
    with jax.default_matmul_precision("highest"):
        read = lambda p: call({"params": p}, tokens_BL, valid_BL, L, method=encode_windows)  # noqa: E731
        by_window = quick_jit(read)(params)
        masked = quick_jit(lambda p, mask: call({"params": p}, tokens_BL, mask=mask).h)
        whole, at_once = (
            masked(params, Mask(valid_BL=valid_BL, visible_BLJ=visible[None]))
            for visible in (near, near | True)
        )
    tolerance = 2e-6 * float(np.abs(whole[valid_BL]).max())
    np.testing.assert_allclose(by_window[valid_BL], whole[valid_BL], atol=tolerance, rtol=0)
    assert not np.allclose(by_window[valid_BL], at_once[valid_BL], atol=1e-2)


RNN = modules.build("recurrent", V=20, D=5, U=5, N=2, Z=1, cell="lstm")
VALID_BL = np.arange(11) < np.array([[11], [6], [9]])
TOKENS_BL = np.random.default_rng(0).integers(2, 20, (3, 11))
TOKENS_BL[:, 3] = 1  # this word stands in the first chunk alone


def read_loop(model, tokens_BL, valid_BL, L, *, train=False):
    """Chunks of L in a plain loop, with nothing but the state's values between them."""
    memory, states = model.initial_memory(len(tokens_BL)), []
    for begin in range(0, tokens_BL.shape[1], L):
        at = np.s_[:, begin : begin + L]
        mask = text_mask(model, valid_BL=valid_BL[at])
        h_BLD, memory = model(tokens_BL[at], mask=mask, memory=memory, train=train)
        memory = jax.lax.stop_gradient(memory)
        states.append(h_BLD)
    return jnp.concatenate(states, 1)


def read(method, params, L=4, valid_BL=VALID_BL):
    given = TOKENS_BL, valid_BL, L
    return RNN.apply({"params": params}, *given, train=False, method=method)


@pytest.mark.parametrize("valid_BL", [VALID_BL, VALID_BL[:, ::-1]], ids=["right", "left"])
def test_states_by_chunks_are_those_of_rows_read_at_once(valid_BL):
    params = init_params(RNN)
    run = quick_jit(read, static_argnums=(0, 2))
    np.testing.assert_allclose(
        run(encode_chunks, params, 4, valid_BL), run(encode_chunks, params, 11, valid_BL), atol=1e-6
    )


def test_gradients_by_chunks_are_those_of_a_loop_that_detaches_the_state():
    params = init_params(RNN)

    @functools.partial(quick_jit, static_argnums=0)
    def grads(method, params, pooled_BL):
        loss = lambda params: jnp.square(read(method, params) * pooled_BL[..., None]).sum()  # noqa: E731
        return jax.grad(loss)(params)

    close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6)
    by_chunks = {}
    for last in (0, 5, 2):
        pooled_BL = np.asarray(keep_last(jnp.asarray(VALID_BL), last))
        by_chunks[last] = grads(encode_chunks, params, pooled_BL)
        jax.tree.map(close, by_chunks[last], grads(read_loop, params, pooled_BL))
    # Of the last two words the first chunk is none: its words have no gradient.
    assert np.abs(by_chunks[0]["token_VD"][1]).max() > 1e-4
    assert not by_chunks[2]["token_VD"][1].any()


def test_each_chunk_draws_dropout_of_its_own():
    model = RNN.clone(N=1, rnn_dropout=0.5)
    tokens_BL, rngs = np.full((2, 8), 3), {"dropout": jax.random.key(0)}
    read = functools.partial(encode_chunks, L=4, train=True)
    run = lambda params: model.apply(  # noqa: E731
        {"params": params}, tokens_BL, tokens_BL > 0, rngs=rngs, method=read
    )
    is_dropped_BLU = np.asarray(quick_jit(run)(init_params(model))) == 0
    assert 0.2 < is_dropped_BLU.mean() < 0.8
    assert (is_dropped_BLU[:, :4] != is_dropped_BLU[:, 4:]).any()
