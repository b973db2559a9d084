"""The loss that never holds its logits is the loss that does."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from modules.losses import cross_entropy
from tests.support.compiler import quick_jit
from tests.support.jaxpr import arrays_in

B, P, V, D = 3, 7, 50, 8


@pytest.fixture(scope="module")
def given():
    """(h, w, bias), targets, weights; weights differ and some are 0."""
    rng = np.random.default_rng(0)
    h_BPD, w_VD, bias_V = (rng.normal(0, 1, s).astype(np.float32) for s in ((B, P, D), (V, D), V))
    weights_BP = rng.integers(0, 3, (B, P)).astype(np.float32) / 2
    return (h_BPD, w_VD, bias_V), rng.integers(0, V, (B, P)), weights_BP


def compute_sums(arrays, targets_BP, weights_BP, chunks):
    """Computes (nats, hits) by the loss of this file."""
    sums = cross_entropy.softmax_cross_entropy(*arrays, targets_BP, weights_BP, chunks=chunks)
    assert sums["loss"].weight is sums["accuracy"].weight
    return sums["loss"].total, sums["accuracy"].total


def compute_plainly(arrays, targets_BP, weights_BP):
    h_BPD, w_VD, bias_V = arrays
    logits = jnp.einsum("BPD,VD->BPV", h_BPD, w_VD.astype(h_BPD.dtype)).astype(jnp.float32) + bias_V
    each_BP = optax.softmax_cross_entropy_with_integer_labels(logits, targets_BP)
    hits_BP = logits.argmax(-1) == targets_BP
    return (each_BP * weights_BP).sum(), (hits_BP * weights_BP).sum()


def differentiate(loss, arrays, *args):
    """Returns ((nats, hits), gradients)."""
    with jax.default_matmul_precision("highest"):
        return quick_jit(jax.value_and_grad(lambda a: loss(a, *args), has_aux=True))(arrays)


@pytest.mark.parametrize("chunks", [1, 3, 9])
def test_loss_hits_and_gradients_are_optax_s_for_any_number_of_chunks(given, chunks):
    arrays, targets_BP, weights_BP = given
    targets_BP = targets_BP.copy()
    top_BP = (arrays[0] @ arrays[1].T + arrays[2]).argmax(-1)
    targets_BP[:, :3] = top_BP[:, :3]  # so that there are hits
    (nats, hits), grads = differentiate(compute_sums, arrays, targets_BP, weights_BP, chunks)
    expected, expected_grads = differentiate(compute_plainly, arrays, targets_BP, weights_BP)
    np.testing.assert_allclose(nats, expected[0], rtol=1e-6)
    assert 0 < hits == expected[1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), grads, expected_grads)


def test_no_biases_are_biases_of_zero(given):
    (h_BPD, w_VD, bias_V), targets_BP, weights_BP = given

    def run(bias_V):
        def loss(arrays):
            return compute_sums((*arrays, bias_V), targets_BP, weights_BP, 3)

        return differentiate(loss, (h_BPD, w_VD))

    none, zero = run(None), run(0 * bias_V)
    jax.tree.map(np.testing.assert_array_equal, none[0], zero[0])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), none[1], zero[1])


def test_states_in_bfloat16_give_a_float32_loss_and_gradients_of_each_dtype(given):
    (h_BPD, w_VD, bias_V), targets_BP, weights_BP = given
    arrays = (h_BPD.astype(jnp.bfloat16), w_VD, bias_V)
    rounded = (arrays[0].astype(np.float32), w_VD.astype(jnp.bfloat16).astype(np.float32), bias_V)
    (nats, _), grads = differentiate(compute_sums, arrays, targets_BP, weights_BP, 3)
    (total, _), expected = differentiate(compute_plainly, rounded, targets_BP, weights_BP)
    assert nats.dtype == jnp.float32
    assert [x.dtype for x in grads] == [x.dtype for x in arrays]
    np.testing.assert_allclose(nats, total, rtol=2e-4)  # of logits in bfloat16, too
    for a, b in zip(grads, expected, strict=True):
        assert np.linalg.norm(a.astype(np.float32) - b) < 0.01 * np.linalg.norm(b)


@pytest.mark.parametrize("transform", [lambda loss: loss, jax.grad], ids=["value", "gradient"])
def test_no_array_holds_all_the_logits(given, transform):
    arrays, *rest = given

    def most(chunks):
        program = jax.make_jaxpr(transform(lambda a: compute_sums(a, *rest, chunks)[0]))(arrays)
        return max(int(np.prod(var.aval.shape)) for var in arrays_in(program.jaxpr))

    assert most(chunks=1) == B * P * V
    assert most(chunks=7) < B * P * V / 2
