"""The cache remembers what a whole row would see."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers.attention import KVCache
from modules.masks import Mask
from tests.support import transformer_inputs as cases
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import off

pytestmark = pytest.mark.usefixtures("exactly")

B, L = 3, 12
TOKENS_BL = cases.tokens(B, L)


@functools.cache
def reader(kind):
    """(model, parameters, extend, states of the whole rows)."""
    model = cases.DECODERS[kind]
    params = cases.draw(model)

    @quick_jit
    def extend(tokens_BL, memory, lengths_B=None):
        given = dict(mask=Mask(is_causal=True, lengths_B=lengths_B), memory=memory, train=False)
        return model.apply({"params": params}, tokens_BL, **given)

    return model, params, extend, quick_jit(cases.forward(model, TOKENS_BL))(params)


@pytest.mark.parametrize(("kind", "size"), [("pre", 1), ("post", 4), ("banded", 4)])
def test_reading_in_pieces_is_reading_at_once(kind, size):
    model, _, extend, whole = reader(kind)
    cache, pieces = model.initial_memory(B, L), []
    for start in range(0, L, size):
        h_BLD, cache = extend(TOKENS_BL[:, start : start + size], cache)
        pieces.append(h_BLD)
    assert off(jnp.concatenate(pieces, 1), whole) < 2e-6
    assert (cache.length_B == L).all()


def ragged(extend, cache, whole, chunks, room=4):
    """Reads so many tokens of each row in each chunk; the states of the real ones are as whole."""
    rng, read_B = np.random.default_rng(1), np.zeros(B, int)
    for lengths_B in np.array(chunks):
        tokens_BL = rng.integers(0, 40, (B, room))  # behind a row's own tokens: any
        for b, n in enumerate(lengths_B):
            tokens_BL[b, :n] = TOKENS_BL[b, read_B[b] : read_B[b] + n]
        h_BLD, cache = extend(tokens_BL, cache, lengths_B)
        for b, n in enumerate(lengths_B):
            if n:
                assert off(h_BLD[b, :n], whole[b, read_B[b] : read_B[b] + n]) < 2e-6
        read_B += lengths_B
    assert (cache.length_B == read_B).all()
    return cache


@pytest.mark.parametrize("kind", cases.DECODERS)
def test_rows_may_be_read_at_paces_of_their_own(kind):
    model, _, extend, whole = reader(kind)
    ragged(extend, model.initial_memory(B, L), whole, [(4, 2, 1), (1, 0, 3), (2, 4, 3)])


def test_a_chunk_s_padding_may_stick_out_of_the_room():
    model, _, extend, whole = reader("pre")
    ragged(extend, model.initial_memory(B, L), whole, [(4, 4, 4), (4, 4, 4), (2, 1, 4), (2, 2, 0)])


def test_what_is_behind_a_row_s_length_never_matters():
    model, _, extend, _ = reader("banded")
    lengths_B = jnp.array([4, 0, 2])
    _, cache = extend(TOKENS_BL[:, :4], model.initial_memory(B, L), lengths_B)
    unread_BJ = jnp.arange(L) >= lengths_B[:, None]
    noise = 100 * jax.random.normal(jax.random.key(0), cache.k_NBJHK.shape)
    both = cache.k_NBJHK, cache.v_NBJHK
    dirty = [jnp.where(unread_BJ[..., None, None], noise, x) for x in both]
    clean, kept = extend(TOKENS_BL[:, 4:8], cache)
    np.testing.assert_array_equal(
        extend(TOKENS_BL[:, 4:8], KVCache(*dirty, cache.length_B))[0], clean
    )
    assert (kept.length_B == lengths_B + 4).all()


def test_the_cache_holds_what_the_model_computes_in():
    cache = cases.tiny(**cases.GPT2, dtype="bfloat16").initial_memory(2, 5)
    assert cache.k_NBJHK.dtype == cache.v_NBJHK.dtype == jnp.bfloat16
    assert cache.k_NBJHK.shape == cache.v_NBJHK.shape == (3, 2, 5, 2, 8)
    assert not cache.length_B.any()
