"""Attention over what a mask shows, with dropout of its probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import attention, cudnn_attention
from modules.kernels.dropout_bits import DropoutKey
from modules.masks import Mask, make_view
from tests.support.arrays import draw
from tests.support.kernel_cases import Case, assert_is_reference, every_form

pytestmark = pytest.mark.usefixtures("exactly")

B, L, H, K = 2, 8, 2, 8


def test_dropout_takes_out_probabilities_and_scales_up_the_rest():
    values = jnp.broadcast_to(jnp.eye(L)[None, :, None], (B, L, H, L))  # so out come they
    q_BLHK, k_BLHK = (draw(B, L, H, K, seed=i) for i in range(2))
    view = make_view(Mask(is_causal=True), L)
    key = DropoutKey(0.5, jax.random.bits(jax.random.key(0), (2,)))
    whole, dropped = (
        np.asarray(attention.attend(q_BLHK, k_BLHK, values, view, dropout=dropout))
        for dropout in (None, key)
    )
    np.testing.assert_allclose(whole.sum(-1), 1, rtol=1e-6)
    seen, kept = whole > 0, dropped > 0
    assert not (kept & ~seen).any()
    assert 0.35 < kept[seen].mean() < 0.65
    np.testing.assert_allclose(dropped[kept], 2 * whole[kept], rtol=1e-6)


CASE = Case(
    lambda a: attention.attend(**a, view=make_view(Mask(is_causal=True), L)),
    lambda a: jax.nn.dot_product_attention(a["q_BLHK"], a["k_BJHK"], a["v_BJHK"], is_causal=True),
    {f"{name}HK": draw(8, L, 2, 4, seed=n) for n, name in enumerate(("q_BL", "k_BJ", "v_BJ"))},
    (attention, cudnn_attention),
    1e-5,
)


@every_form(CASE)
def test_values_and_gradients_are_the_reference_s(form, devices, monkeypatch):
    assert_is_reference(CASE, form, devices, monkeypatch)
