"""Attention over what a mask shows, with dropout of its probabilities."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules import plugins
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


def make_kernel(why: str):
    """Returns a kernel that says why it cannot be used; "": it gives ones."""
    answers = dict(refusal=lambda *_: why, attend=lambda q_BLHK, *_: jnp.ones_like(q_BLHK))
    return types.SimpleNamespace(NAME="a kernel", **answers)


def attend_in_training(form, length=L):
    """Returns what is said, and whether the kernel was taken."""
    q_BLHK, lines = draw(B, length, H, K, seed=0), []
    with attention.training_step(lines.append):
        o_BLHK = attention.attend(q_BLHK, q_BLHK, q_BLHK, make_view(Mask(), length), form=form)
    return lines, bool((o_BLHK == 1).all())


def test_a_training_step_says_which_form_it_takes(monkeypatch):
    assert attend_in_training("auto") == ([], False)
    monkeypatch.setitem(attention.FORMS, "cpu", (make_kernel("it is small"), make_kernel("")))
    for form in ("auto", "kernel"):
        assert attend_in_training(form) == (["attention by a kernel"], True)
    assert attend_in_training("plain") == ([], False)
    monkeypatch.setitem(attention.FORMS, "cpu", (make_kernel("it is small"),))
    assert attend_in_training("auto") == (["attention by plain products: it is small"], False)


def test_a_kernel_that_training_asks_for_is_not_replaced(monkeypatch):
    with pytest.raises(
        plugins.FieldError, match="attention_form='kernel': there is none for a cpu"
    ):
        attend_in_training("kernel")
    monkeypatch.setitem(attention.FORMS, "cpu", (make_kernel("it is small"),))
    with pytest.raises(plugins.FieldError, match="it is small; take 'auto' or 'plain'"):
        attend_in_training("kernel")
    assert attend_in_training("kernel", length=1) == ([], False)
    q_BLHK = draw(B, L, H, K, seed=0)
    with pytest.warns(UserWarning, match="by plain products: it is small"):
        attention.attend(q_BLHK, q_BLHK, q_BLHK, make_view(Mask(), L), form="kernel")


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
