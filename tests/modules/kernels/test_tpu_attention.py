"""What the kernel cannot compute is refused, and said."""

import types
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import attention, tpu_attention
from modules.kernels import tpu_attention_blocks as blocks
from modules.kernels.distance_scores import RelativeTerms
from modules.masks import Mask, make_view


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


def test_numbers_lie_in_whole_registers_by_their_names():
    mask = Mask(is_causal=True, groups_BL=np.array([[0, 0, 1], [0, 1, 1]]))
    view = make_view(mask, 3)
    queries_BPn = np.asarray(tpu_attention.stack_queries(view, 3, 2, 4))
    keys_BnJ = np.asarray(tpu_attention.stack_keys(view, 3, 2))
    assert (queries_BPn.shape, keys_BnJ.shape) == ((2, 4, 128), (2, 8, 3))
    np.testing.assert_array_equal(queries_BPn[:, :, blocks.END], [[1, 2, 3, 0]] * 2)
    np.testing.assert_array_equal(keys_BnJ[:, blocks.KEY_GROUP], mask.groups_BL)
