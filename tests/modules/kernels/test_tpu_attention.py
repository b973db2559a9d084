"""Numbers of queries and keys say what a mask says, and what they cannot say is refused."""

import functools
import types
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import attention, tpu_attention
from modules.kernels import tpu_attention_blocks as blocks
from modules.kernels.distance_scores import RelativeTerms
from modules.masks import Mask, make_view

B, L, M = 3, 6, 4
J = M + L
RNG = np.random.default_rng(0)
BITS_BL = functools.partial(RNG.random, (B, L))
MASKS = [
    Mask(),
    Mask(is_causal=True, same_length=True),
    Mask(window=3, lengths_B=np.array([6, 0, 3])),
    Mask(is_causal=True, prefix_B=np.array([0, 2, 6]), valid_BL=BITS_BL() < 0.6),
    Mask(groups_BL=np.sort(RNG.integers(0, 3, (B, L)))),
    Mask(
        rank_BL=RNG.integers(-1, 5, (B, L)),
        sees_below_BL=RNG.integers(-1, 5, (B, L)),
        memory_BM=RNG.random((B, M)) < 0.6,
        sees_memory_BL=BITS_BL() < 0.6,
        is_causal=True,
    ),
]
SLOTS_BP = np.array([[5, 0], [2, 2], [1, 4]])


def compare_numbers(view):
    P = view.visible.shape[2] + 2
    queries_BPn = np.asarray(tpu_attention.number_queries(view, J, B, P))
    keys_BnJ = np.asarray(tpu_attention.number_keys(view, J, B))
    column = lambda n: queries_BPn[:, :, n, None]  # noqa: E731
    row = lambda n: keys_BnJ[:, n, None]  # noqa: E731
    seen = (np.arange(J) >= column(blocks.FIRST)) & (np.arange(J) < column(blocks.END))
    seen &= row(blocks.RANK) < column(blocks.BELOW)
    seen &= row(blocks.KEY_GROUP) == column(blocks.GROUP)
    return seen | (np.arange(J) == column(blocks.OWN))


@pytest.mark.parametrize("slots_BP", [None, SLOTS_BP])
@pytest.mark.parametrize("number", range(len(MASKS)))
def test_numbers_show_what_the_mask_shows(number, slots_BP):
    view = make_view(MASKS[number], L, J, slots_BP=slots_BP, sees_itself=number % 2 == 0, window=2)
    view = view.restrict_to_band(jnp.array(number > 3)) if number > 2 else view
    seen_BPJ = compare_numbers(view)
    expected = np.broadcast_to(view.visible[:, 0], (B, seen_BPJ.shape[1] - 2, J))
    np.testing.assert_array_equal(seen_BPJ[:, :-2], expected)
    assert not seen_BPJ[:, -2:].any()  # queries that fill up a block


def refusal(L=128, J=128, H=2, K=64, mask=Mask(), relative=None):  # noqa: B008
    q, k = (jnp.zeros((2, length, H, K)) for length in (L, J))
    return tpu_attention.refusal(q, k, k, make_view(mask, L), relative, None)


def test_other_lengths_widths_and_written_masks_are_refused():
    assert refusal() == ""
    assert refusal(L=100, J=256, K=128) == ""
    by_row = RelativeTerms(*[None] * 4, r=np.zeros((2, 256, 2, 64)))
    others = [dict(J=100), dict(J=4096), dict(L=1), dict(K=48), dict(relative=by_row)]
    others.append(dict(mask=Mask(visible_BLJ=np.ones((1, 128, 128), bool))))
    assert all(refusal(**other) for other in others)


def test_the_content_of_a_v4_is_refused_for_its_rolls(monkeypatch):
    old = types.SimpleNamespace(device_kind="TPU v4", platform="tpu")
    monkeypatch.setattr(tpu_attention, "find_device", lambda: old)
    assert refusal() == ""
    assert "v4" in refusal(relative=RelativeTerms(*[None] * 4, r=np.zeros((256, 2, 64))))


def test_plain_products_are_said_to_stand_in_for_a_kernel(monkeypatch):
    monkeypatch.setitem(attention.FORMS, "cpu", (tpu_attention,))
    q_BLHK = jnp.ones((1, 4, 1, 8))
    with pytest.warns(UserWarning, match="by plain products: it takes more than one query"):
        attention.attend(q_BLHK, q_BLHK, q_BLHK, make_view(Mask(), 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention.attend(q_BLHK[:, :1], q_BLHK[:, :1], q_BLHK[:, :1], make_view(Mask(), 1))
