"""The fused kernel sees what the mask sees, and is asked where it can."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers import attention
from modules.layers.dropout import Dropout
from tests.support import transformer_inputs as cases
from tests.support.xlnet_inputs import off, quick_jit

B, L, H, K = 2, 8, 2, 8
LENGTHS = np.array([8, 5], np.int32)
GROUPS = np.array([[0, 0, 0, 1, 1, 1, 2, 2], [3, 3, 4, 4, 4, 4, 4, 4]])
SLOTS = np.array([[7, 0, 3], [4, 4, 2]])


@pytest.fixture(autouse=True)
def exact_products():
    with jax.default_matmul_precision("highest"):
        yield


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(0, 1, shape), jnp.float32)


def attend(sight, slots_BP=None, rate=0.0, train=False, values=None):
    q_BLHK, k_BLHK, v_BLHK = (draw(i, B, L, H, K) for i in range(3))
    q_BLHK = q_BLHK if slots_BP is None else attention.at(q_BLHK, slots_BP)
    v_BLHK = v_BLHK if values is None else values

    def run(q_BLHK):
        drop = Dropout(rate)
        bound = drop.bind({}, rngs={"dropout": jax.random.key(0)})
        return attention.attend(q_BLHK, k_BLHK, v_BLHK, sight, bound, train=train)

    return run(q_BLHK)


# --- which path ------------------------------------------------------------------------------


WHOLE = attention.Sight(jnp.ones((1, 1, 4, 4), bool), {})
MASK = attention.Sight(jnp.ones((1, 1, 4, 4), bool))


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        (dict(), True),
        (dict(dtype="float16", K=128), True),
        (dict(sight=MASK), True),
        (dict(L=3), True),
        (dict(L=192, sight=MASK), False),
        (dict(J=5, sight=MASK), False),
        (dict(backend="cpu"), False),
        (dict(backend="tpu"), False),
        (dict(card="7.5"), False),
        (dict(card="gfx90a"), False),
        (dict(dtype="float32"), False),
        (dict(K=12), False),
        (dict(K=256), False),
    ],
)
def test_cudnn_is_asked_on_a_gpu_for_what_it_takes(monkeypatch, change, fits):
    now = (
        dict(backend="gpu", card="9.0", dtype="bfloat16", K=64, L=256, J=128, sight=WHOLE) | change
    )
    monkeypatch.setattr(jax, "default_backend", lambda: now["backend"])
    card = types.SimpleNamespace(compute_capability=now["card"])
    monkeypatch.setattr(jax, "devices", lambda: [card])
    q, k = (jnp.zeros((1, now[length], 1, now["K"]), now["dtype"]) for length in "LJ")
    assert attention.fused(q, k, now["sight"]) == fits


@pytest.fixture
def gpu(monkeypatch):
    """As on a GPU; the kernel's place is taken by a plain computation that reads its words."""
    plain, asked = jax.nn.dot_product_attention, []

    def kernel(*arrays, implementation, **words):
        assert implementation == "cudnn"
        asked.append({name for name, word in words.items() if word is not None})
        return plain(*arrays, implementation="xla", **words)

    monkeypatch.setattr(attention, "fused", lambda *_: True)
    monkeypatch.setattr(jax.nn, "dot_product_attention", kernel)
    return asked


CAUSAL, BOTH = dict(causal=True), dict(causal=False)

# What is looked at, and in which of the kernel's words that is said.
SIGHTS = {
    "all": (BOTH, set()),
    "what came before": (CAUSAL, {"is_causal"}),
    "rows of unequal length": (BOTH | dict(lengths_B=LENGTHS), {"key_value_seq_lengths"}),
    "what came before, unequal": (
        CAUSAL | dict(lengths_B=LENGTHS),
        {"is_causal", "key_value_seq_lengths"},
    ),
    "groups": (BOTH | dict(groups_BL=GROUPS), {"mask"}),
    "groups, what came before, unequal": (
        CAUSAL | dict(groups_BL=GROUPS, lengths_B=LENGTHS),
        {"mask"},
    ),
    "slots": (BOTH | dict(slots_BP=SLOTS), set()),
    "slots, unequal": (
        BOTH | dict(slots_BP=SLOTS, lengths_B=LENGTHS),
        {"key_value_seq_lengths"},
    ),
    "slots, groups": (BOTH | dict(slots_BP=SLOTS, groups_BL=GROUPS), {"mask"}),
    "slots, what came before": (CAUSAL | dict(slots_BP=SLOTS), {"mask"}),
}


@pytest.mark.parametrize("case", SIGHTS)
def test_the_kernel_s_words_say_what_the_mask_says(gpu, monkeypatch, case):
    what, words = SIGHTS[case]
    sight = attention.sight(L, **what)
    fused = attend(sight, what.get("slots_BP"))
    monkeypatch.setattr(attention, "fused", lambda *_: False)
    own = attend(sight, what.get("slots_BP"))
    assert gpu == [words]
    assert fused.shape == own.shape
    assert off(fused, np.asarray(own, np.float64)) < 1e-6


@pytest.mark.parametrize("banded", [False, True])
@pytest.mark.parametrize("slots_BP", [None, SLOTS])
def test_the_kernel_sees_a_band_where_there_is_one(gpu, monkeypatch, banded, slots_BP):
    sight = attention.sight(L, causal=True, window=3, slots_BP=slots_BP)
    i_BL1 = np.arange(L)[None, :, None] if slots_BP is None else slots_BP[..., None]
    near = np.arange(L) > i_BL1 - (3 if banded else L)
    narrowed = sight.narrowed(jnp.array(banded))
    np.testing.assert_array_equal(narrowed.visible[:, 0], near & (np.arange(L) <= i_BL1))
    fused = attend(narrowed, slots_BP)
    monkeypatch.setattr(attention, "fused", lambda *_: False)
    assert off(fused, np.asarray(attend(narrowed, slots_BP), np.float64)) < 1e-6
    assert gpu == [{"mask"}]


def test_a_whole_model_gives_the_same_states_by_either_path(gpu, monkeypatch):
    tokens_BL, valid_BL = cases.tokens(B, L), np.arange(L) < LENGTHS[:, None]
    model = cases.tiny(**cases.BERT)
    params = cases.draw(model)
    run = lambda: cases.forward(model, tokens_BL, valid_BL=valid_BL)  # noqa: E731
    fused = quick_jit(run())(params)
    assert gpu
    monkeypatch.setattr(attention, "fused", lambda *_: False)
    assert off(fused, np.asarray(quick_jit(run())(params), np.float64)) < 2e-6


def test_probabilities_are_dropped_by_our_own_path_alone(gpu):
    sight = attention.sight(L, causal=True)
    attend(sight, rate=0.5, train=True)
    assert not gpu
    attend(sight, rate=0.5, train=False)
    attend(sight, rate=0.0, train=True)
    assert len(gpu) == 2


def test_dropout_takes_out_probabilities():
    values = jnp.broadcast_to(jnp.eye(L)[None, :, None], (B, L, H, L))  # so out come they
    sight = attention.sight(L, causal=True)
    whole = np.asarray(attend(sight, values=values))
    dropped = np.asarray(attend(sight, values=values, rate=0.5, train=True))
    np.testing.assert_allclose(whole.sum(-1), 1, rtol=1e-6)
    seen, kept = whole > 0, dropped > 0
    assert not (kept & ~seen).any()
    assert 0.35 < kept[seen].mean() < 0.65
    np.testing.assert_allclose(dropped[kept], 2 * whole[kept], rtol=1e-6)


# --- the past --------------------------------------------------------------------------------


def test_new_keys_stand_behind_those_of_their_own_row():
    length_B = jnp.array([3, 0])
    past = attention.Past(draw(0, B, L, H, K), draw(1, B, L, H, K), length_B)
    new = draw(2, B, 2, H, K), draw(3, B, 2, H, K)
    for old, fresh, written in zip(past[:2], new, past.written(*new), strict=True):
        for b, n in enumerate(length_B):
            np.testing.assert_array_equal(written[b, n : n + 2], fresh[b])
            np.testing.assert_array_equal(written[b, :n], old[b, :n])
            np.testing.assert_array_equal(written[b, n + 2 :], old[b, n + 2 :])
