"""The fused kernel sees what the mask sees, and is asked where it can."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import attention
from modules.layers.dropout import Dropout
from modules.masks import Mask, at
from tests.support.arrays import draw
from tests.support.kernel_cases import Case, assert_is_reference, every_form
from tests.support.xlnet_inputs import off

pytestmark = pytest.mark.usefixtures("exactly")

B, L, H, K = 2, 8, 2, 8
LENGTHS = np.array([8, 5], np.int32)
GROUPS = np.array([[0, 0, 0, 1, 1, 1, 2, 2], [3, 3, 4, 4, 4, 4, 4, 4]])
SLOTS = np.array([[7, 0, 3], [4, 4, 2]])


def attend(mask, slots_BP=None, rate=0.0, values=None):
    q_BLHK, k_BLHK, v_BLHK = (draw(B, L, H, K, seed=i) for i in range(3))
    q_BLHK = q_BLHK if slots_BP is None else at(q_BLHK, slots_BP)
    v_BLHK = v_BLHK if values is None else values
    bound = Dropout(rate).bind({}, rngs={"dropout": jax.random.key(0)})
    drops = functools.partial(bound, train=True) if rate else None
    return attention.attend(q_BLHK, k_BLHK, v_BLHK, mask, drops)


# --- which path ------------------------------------------------------------------------------


WHOLE = attention.AttentionMask(jnp.ones((1, 1, 4, 4), bool), {})
DENSE = attention.AttentionMask(WHOLE.visible, {"mask": WHOLE.visible})


FITS = [dict(), dict(dtype="float16", K=128), dict(mask=DENSE), dict(L=3)]
FITS_NOT = [dict(L=192, mask=DENSE), dict(J=5, mask=DENSE), dict(dtype="float32")]
FITS_NOT += [dict(backend="cpu"), dict(backend="tpu"), dict(card="7.5"), dict(card="gfx90a")]
FITS_NOT += [dict(K=12), dict(K=256), dict(L=1)]


@pytest.mark.parametrize("change", FITS + FITS_NOT, ids=",".join)
def test_cudnn_is_asked_on_a_gpu_for_what_it_takes(monkeypatch, change):
    now = dict(backend="gpu", card="9.0", dtype="bfloat16", K=64, L=256, J=128, mask=WHOLE) | change
    card = types.SimpleNamespace(platform=now["backend"], compute_capability=now["card"])
    monkeypatch.setattr(attention, "find_device", lambda: card)
    q, k = (jnp.zeros((1, now[length], 1, now["K"]), now["dtype"]) for length in "LJ")
    assert attention.is_fusable(q, k, now["mask"]) == (change in FITS)


@pytest.fixture
def gpu(monkeypatch):
    """Stands for a GPU: a plain computation takes the arguments of the kernel."""
    plain, asked = jax.nn.dot_product_attention, []

    def kernel(*arrays, implementation, **words):
        assert implementation == "cudnn"
        # cuDNN's bias has a row for each query.
        assert "mask" not in words or words["mask"].shape[2] == arrays[0].shape[1]
        asked.append({name for name, word in words.items() if word is not None})
        return plain(*arrays, implementation="xla", **words)

    monkeypatch.setattr(attention, "is_fusable", lambda *_: True)
    monkeypatch.setattr(jax.nn, "dot_product_attention", kernel)
    return asked


# A mask, whose slots look, and in which of the kernel's words it is said.
MASKS = {
    "all": (Mask(), None, set()),
    "causal": (Mask(is_causal=True), None, {"is_causal"}),
    "lengths": (Mask(lengths_B=LENGTHS), None, {"key_value_seq_lengths"}),
    "causal, lengths": (
        Mask(is_causal=True, lengths_B=LENGTHS),
        None,
        {"is_causal", "key_value_seq_lengths"},
    ),
    "padded anywhere": (Mask(valid_BL=GROUPS % 2 == 0), None, {"mask"}),
    "causal, documents": (
        Mask(is_causal=True, lengths_B=LENGTHS, groups_BL=GROUPS),
        None,
        {"is_causal", "mask"},
    ),
    "a prefix": (Mask(is_causal=True, prefix_B=LENGTHS - 3), None, {"mask"}),
    "documents": (Mask(groups_BL=GROUPS), None, {"mask"}),
    "slots": (Mask(), SLOTS, set()),
    "slots, lengths": (Mask(lengths_B=LENGTHS), SLOTS, {"key_value_seq_lengths"}),
    "slots, documents": (Mask(groups_BL=GROUPS), SLOTS, {"mask"}),
    "slots, causal": (Mask(is_causal=True), SLOTS, {"mask"}),
}


@pytest.mark.parametrize("case", MASKS)
def test_the_kernel_s_words_say_what_the_mask_says(gpu, monkeypatch, case):
    mask, slots_BP, words = MASKS[case]
    prepared = attention.make_attention_mask(mask, L, slots_BP=slots_BP)
    fused = attend(prepared, slots_BP)
    monkeypatch.setattr(attention, "is_fusable", lambda *_: False)
    own = attend(prepared, slots_BP)
    assert gpu == [words]
    assert fused.shape == own.shape
    assert off(fused, np.asarray(own, np.float64)) < 1e-6


@pytest.mark.parametrize("banded", [False, True])
@pytest.mark.parametrize("slots_BP", [None, SLOTS])
def test_the_kernel_sees_a_band_where_there_is_one(gpu, monkeypatch, banded, slots_BP):
    mask = attention.make_attention_mask(Mask(is_causal=True), L, slots_BP=slots_BP, window=3)
    i_BL1 = np.arange(L)[None, :, None] if slots_BP is None else slots_BP[..., None]
    near = np.arange(L) > i_BL1 - (3 if banded else L)
    narrowed = mask.restrict_to_band(jnp.array(banded))
    np.testing.assert_array_equal(narrowed.visible[:, 0], near & (np.arange(L) <= i_BL1))
    fused = attend(narrowed, slots_BP)
    monkeypatch.setattr(attention, "is_fusable", lambda *_: False)
    assert off(fused, np.asarray(attend(narrowed, slots_BP), np.float64)) < 1e-6
    assert gpu == [{"mask"} | ({"is_causal"} if slots_BP is None else set())]


def test_dropout_takes_out_probabilities_by_our_own_path_alone(gpu):
    values = jnp.broadcast_to(jnp.eye(L)[None, :, None], (B, L, H, L))  # so out come they
    mask = attention.make_attention_mask(Mask(is_causal=True), L)
    dropped = np.asarray(attend(mask, values=values, rate=0.5))
    assert not gpu
    whole = np.asarray(attend(mask, values=values))
    assert len(gpu) == 1
    np.testing.assert_allclose(whole.sum(-1), 1, rtol=1e-6)
    seen, kept = whole > 0, dropped > 0
    assert not (kept & ~seen).any()
    assert 0.35 < kept[seen].mean() < 0.65
    np.testing.assert_allclose(dropped[kept], 2 * whole[kept], rtol=1e-6)


CASE = Case(
    lambda a: attention.attend(**a, mask=attention.make_attention_mask(Mask(is_causal=True), L)),
    lambda a: jax.nn.dot_product_attention(a["q_BLHK"], a["k_BJHK"], a["v_BJHK"], is_causal=True),
    {f"{name}HK": draw(8, L, 2, 4, seed=n) for n, name in enumerate(("q_BL", "k_BJ", "v_BJ"))},
    (attention,),
    1e-5,
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
