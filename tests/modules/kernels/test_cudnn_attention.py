"""The fused kernel sees what the mask sees, and is asked where it can."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import attention, cudnn_attention
from modules.kernels.dropout_bits import DropoutKey
from modules.masks import Mask, at, make_view
from tests.support.arrays import draw
from tests.support.xlnet_inputs import off

pytestmark = pytest.mark.usefixtures("exactly")

B, L, H, K = 2, 8, 2, 8
LENGTHS = np.array([8, 5], np.int32)
GROUPS = np.array([[0, 0, 0, 1, 1, 1, 2, 2], [3, 3, 4, 4, 4, 4, 4, 4]])
SLOTS = np.array([[7, 0, 3], [4, 4, 2]])


def draw_inputs(view) -> tuple:
    J = view.visible.shape[-1]
    q_BLHK, k_BJHK, v_BJHK = (draw(B, J, H, K, seed=i) for i in range(3))
    return at(q_BLHK[:, :L], view.slots_BP), k_BJHK, v_BJHK, view, None, None


DENSE = Mask(visible_BLJ=np.ones((1, 1, 1), bool))
FITS = [dict(), dict(dtype="float16", K=128), dict(mask=DENSE), dict(L=3)]
FITS_NOT = [dict(L=192, mask=DENSE), dict(J=5, mask=DENSE), dict(dtype="float32")]
FITS_NOT += [dict(backend="cpu"), dict(backend="tpu"), dict(card="7.5"), dict(card="gfx90a")]
FITS_NOT += [dict(K=12), dict(K=256), dict(L=1), dict(dropout=DropoutKey(0.1, None))]


@pytest.mark.parametrize("change", FITS + FITS_NOT, ids=",".join)
def test_cudnn_is_asked_on_a_gpu_for_what_it_takes(monkeypatch, change):
    now = dict(backend="gpu", card="9.0", dtype="bfloat16", K=64, L=256, J=128, mask=Mask())
    now |= dict(dropout=None) | change
    card = types.SimpleNamespace(platform=now["backend"], compute_capability=now["card"])
    monkeypatch.setattr(cudnn_attention, "find_device", lambda: card)
    q, k = (jnp.zeros((1, now[length], 1, now["K"]), now["dtype"]) for length in "LJ")
    inputs = q, k, k, make_view(now["mask"], now["L"]), None, now["dropout"]
    assert (cudnn_attention.refusal(*inputs) == "") == (change in FITS)


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


def assert_words(monkeypatch, view, words):
    """Compares the kernel, for which a plain computation takes its words, with the reference."""
    plain, asked = jax.nn.dot_product_attention, []

    def kernel(*arrays, implementation, **words):
        assert implementation == "cudnn"
        # cuDNN's bias has a row for each query.
        assert "mask" not in words or words["mask"].shape[2] == arrays[0].shape[1]
        asked.append({name for name, word in words.items() if word is not None})
        return plain(*arrays, implementation="xla", **words)

    monkeypatch.setattr(jax.nn, "dot_product_attention", kernel)
    inputs = draw_inputs(view)
    fused, expected = cudnn_attention.attend(*inputs), attention.reference(*inputs)
    assert asked == [words]
    assert fused.shape == expected.shape
    assert off(fused, np.asarray(expected, np.float64)) < 1e-6


@pytest.mark.parametrize("case", MASKS)
def test_the_kernel_s_words_say_what_the_mask_says(monkeypatch, case):
    mask, slots_BP, words = MASKS[case]
    assert_words(monkeypatch, make_view(mask, L, slots_BP=slots_BP), words)


@pytest.mark.parametrize("banded", [False, True])
@pytest.mark.parametrize("slots_BP", [None, SLOTS])
def test_the_kernel_sees_a_band_where_there_is_one(monkeypatch, banded, slots_BP):
    view = make_view(Mask(is_causal=True), L, slots_BP=slots_BP, window=3)
    words = {"mask"} | ({"is_causal"} if slots_BP is None else set())
    assert_words(monkeypatch, view.restrict_to_band(jnp.array(banded)), words)


def test_lengths_count_no_memory_and_are_written_out_behind_it(monkeypatch):
    assert_words(monkeypatch, make_view(Mask(lengths_B=LENGTHS), L, L + 3), {"mask"})
