"""Splash attention is told all that a mask hides, and asked for nothing else."""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import attention, splash_attention, tpu_attention
from modules.kernels.dropout_bits import DropoutKey
from modules.masks import Mask, make_view
from tests.support.arrays import draw
from tests.support.kernel_cases import Case, assert_is_reference

B, L, H, K = 4, 256, 2, 8
GROUPS_BL = np.arange(L) // np.array([[256], [100], [1], [129]])

BAND = Mask(is_causal=True, window=4)


def make_case(mask: Mask) -> Case:
    view = make_view(mask, L)

    def run(f):
        return lambda arrays: f(*arrays.values(), view, None, None)

    arrays = {f"{name}_BLHK": draw(B, L, H, K, seed=n) for n, name in enumerate("qkv")}
    files = (splash_attention,)
    return Case(run(splash_attention.attend), run(attention.reference), arrays, files, 1e-5)


# A row of one position, and one of none.
LENGTHS_B = np.array([256, 0, 1, 140])
CASES = {
    "padding anywhere": make_case(Mask(valid_BL=GROUPS_BL % 2 == 0)),
    "causal, documents": make_case(Mask(is_causal=True, groups_BL=GROUPS_BL, lengths_B=LENGTHS_B)),
    "causal, a window": make_case(Mask(is_causal=True, window=70)),
}


@pytest.mark.parametrize("devices", [1, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_the_reference_s(name, devices, monkeypatch):
    assert_is_reference(CASES[name], "default", devices, monkeypatch)


def test_what_it_cannot_say_is_refused():
    def refusal(L=128, J=128, mask=Mask(), relative=None, dropout=None):  # noqa: B008
        q, k = (jnp.zeros((1, length, 2, 64)) for length in (L, J))
        view = make_view(mask, L, J)
        return splash_attention.refusal(q, k, k, view, relative, dropout)

    taken = Mask(is_causal=True, window=3, groups_BL=np.zeros((1, 128)), hides_slots=True)
    assert refusal() == refusal(mask=taken) == refusal(L=4096, J=4096) == ""
    others = [Mask(same_length=True), Mask(is_causal=True, prefix_B=np.array([3]))]
    assert all("only" in refusal(mask=mask) for mask in others)
    assert all("in order" in refusal(**lengths) for lengths in (dict(J=256), dict(L=100, J=100)))
    assert "drops no" in refusal(dropout=DropoutKey(0.1, jnp.zeros(2, jnp.uint32)))


def test_a_tpu_takes_it_for_rows_that_ours_does_not_hold():
    def forms(L):
        q = jnp.zeros((1, L, 2, 64))
        inputs = q, q, q, make_view(Mask(is_causal=True), L), None, None
        return [form for form in attention.FORMS["tpu"] if not form.refusal(*inputs)]

    assert (forms(2048)[0], forms(4096)) == (tpu_attention, [splash_attention])


def test_blocks_that_no_query_sees_are_not_counted():
    for mask, count in ((Mask(), 16), (Mask(is_causal=True), 10)):
        assert splash_attention.count_blocks(make_view(mask, 512), 4, 128) == count
    # Of positions 128 to 255, the first sees from 128 - 3 on: a block more than its own.
    assert splash_attention.count_blocks(make_view(BAND, 512), 4, 128) == 1 + 3 * 2
    assert (
        splash_attention.count_blocks(make_view(Mask(is_causal=True, window=1), 512), 4, 128) == 4
    )
