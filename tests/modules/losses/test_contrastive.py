"""The losses are those of the released codes, in value and gradient.

contrast/losses.npz holds what ConSERT's own function gave in float64 for two sizes (c5, c16: views
a and b at temperature t), and SimCSE's formula (s5, s16) for the same.
"""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.losses import contrastive
from tests.support.compiler import quick_jit

GOLDEN = np.load(pathlib.Path(__file__).parents[2] / "fixtures/contrast/losses.npz")
# ConSERT's code adds up both directions; the paper has their mean.
LOSSES = {"c": (contrastive.nt_xent, 2), "s": (contrastive.in_batch_softmax, 1)}


@pytest.mark.parametrize("size", [5, 16])
@pytest.mark.parametrize("which", LOSSES)
def test_values_and_gradients_are_the_released_code_s(which, size):
    loss, factor = LOSSES[which]
    a_BD, b_BD, temperature = (GOLDEN[f"c{size}/{name}"] for name in ("a", "b", "t"))

    def total(a_BD, b_BD):
        return factor * loss(a_BD, b_BD, float(temperature)).mean()

    value, grads = quick_jit(jax.value_and_grad(total, (0, 1)))(a_BD, b_BD)
    assert value == pytest.approx(GOLDEN[f"{which}{size}/loss"], abs=3e-6)
    for own, name in zip(grads, ("ga", "gb"), strict=True):
        np.testing.assert_allclose(own, GOLDEN[f"{which}{size}/{name}"], atol=2e-6)


def draw(B, D=6):
    return jnp.asarray(np.random.default_rng(0).normal(0, 1, (3, B, D)), jnp.float32)


@pytest.mark.parametrize("which", LOSSES)
def test_rows_without_weight_are_nobody_s_negatives(which):
    a_BD, b_BD, hard_BD = draw(7)
    weight_B, loss = np.array([1, 1, 0, 1, 0, 1, 1]), LOSSES[which][0]
    more = {"negatives_BD": hard_BD} if which == "s" else {}
    with_filler_B = loss(a_BD, b_BD, 0.1, weight_B=weight_B, **more)
    real = weight_B > 0
    alone_B = loss(a_BD[real], b_BD[real], 0.1, **{k: x[real] for k, x in more.items()})
    np.testing.assert_allclose(with_filler_B[real], alone_B, rtol=1e-5)


def test_hard_negatives_are_candidates_of_all_and_weigh_for_their_own():
    a_BD, b_BD, hard_BD = (np.asarray(x, float) for x in draw(4))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a_BD, b_BD, hard_BD)]
    logits_BO = np.concatenate([unit[0] @ unit[1].T, unit[0] @ unit[2].T], 1) / 0.05
    logits_BO[:, 4:] += 0.7 * np.eye(4)
    expected_B = np.log(np.exp(logits_BO).sum(1)) - np.diag(logits_BO)
    found_B = contrastive.in_batch_softmax(a_BD, b_BD, 0.05, hard_BD, 0.7)
    np.testing.assert_allclose(found_B, expected_B, rtol=1e-5)


def test_a_vector_of_zeros_has_finite_gradients():
    a_BD, b_BD, _ = draw(3)
    grad = quick_jit(jax.grad(lambda a_BD: contrastive.nt_xent(a_BD, b_BD, 0.1).sum()))
    assert np.isfinite(grad(a_BD.at[1].set(0))).all()
