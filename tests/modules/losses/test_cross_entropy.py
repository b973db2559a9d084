"""The loss that never holds its logits is the loss that does."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from modules.losses import cross_entropy
from tests.support.jaxpr import arrays_in

B, P, V, D = 3, 7, 50, 8


@pytest.fixture(scope="module")
def given():
    """(h, w, bias), targets, weights; weights differ and some are 0."""
    rng = np.random.default_rng(0)
    h_BPD, w_VD, bias_V = (rng.normal(0, 1, s).astype(np.float32) for s in ((B, P, D), (V, D), V))
    weights_BP = rng.integers(0, 3, (B, P)).astype(np.float32) / 2
    return (h_BPD, w_VD, bias_V), rng.integers(0, V, (B, P)), weights_BP


def ours(arrays, targets_BP, weights_BP, chunks):
    return cross_entropy.softmax_cross_entropy(*arrays, targets_BP, weights_BP, chunks=chunks)


def plain(arrays, targets_BP, weights_BP):
    h_BPD, w_VD, bias_V = arrays
    logits = jnp.einsum("BPD,VD->BPV", h_BPD, w_VD.astype(h_BPD.dtype)).astype(jnp.float32) + bias_V
    each_BP = optax.softmax_cross_entropy_with_integer_labels(logits, targets_BP)
    hits_BP = logits.argmax(-1) == targets_BP
    return (each_BP * weights_BP).sum(), (hits_BP * weights_BP).sum()


@pytest.mark.parametrize("chunks", [1, 2, 3, 7, 9])
def test_loss_hits_and_gradients_are_optax_s_for_any_number_of_chunks(given, chunks):
    arrays, targets_BP, weights_BP = given
    targets_BP = targets_BP.copy()
    top_BP = (arrays[0] @ arrays[1].T + arrays[2]).argmax(-1)
    targets_BP[:, :3] = top_BP[:, :3]  # so that there are hits
    with jax.default_matmul_precision("highest"):
        sums = ours(arrays, targets_BP, weights_BP, chunks)
        slopes = jax.grad(lambda a: 3 * ours(a, targets_BP, weights_BP, chunks)["loss"].total)(
            arrays
        )
        total, hits = plain(arrays, targets_BP, weights_BP)
        expected = jax.grad(lambda a: 3 * plain(a, targets_BP, weights_BP)[0])(arrays)
    np.testing.assert_allclose(sums["loss"].total, total, rtol=1e-6)
    assert hits > 0
    assert sums["accuracy"].total == hits
    assert sums["loss"].weight == sums["accuracy"].weight == weights_BP.sum()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), slopes, expected)


def test_no_biases_are_biases_of_zero(given):
    (h_BPD, w_VD, bias_V), targets_BP, weights_BP = given

    def run(arrays, bias_V):
        sums = cross_entropy.softmax_cross_entropy(
            *arrays, bias_V, targets_BP, weights_BP, chunks=3
        )
        return sums["loss"].total, sums

    with jax.default_matmul_precision("highest"):
        (_, none), slopes = jax.value_and_grad(run, has_aux=True)((h_BPD, w_VD), None)
        (_, zero), expected = jax.value_and_grad(run, has_aux=True)((h_BPD, w_VD), 0 * bias_V)
    jax.tree.map(np.testing.assert_array_equal, none, zero)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), slopes, expected)


def test_states_in_bfloat16_give_a_float32_loss_and_gradients_of_each_dtype(given):
    (h_BPD, w_VD, bias_V), targets_BP, weights_BP = given
    arrays = (h_BPD.astype(jnp.bfloat16), w_VD, bias_V)
    rounded = (arrays[0].astype(np.float32), w_VD.astype(jnp.bfloat16).astype(np.float32), bias_V)
    sums, slopes = jax.value_and_grad(lambda a: ours(a, targets_BP, weights_BP, 3)["loss"].total)(
        arrays
    )
    total, expected = jax.value_and_grad(lambda a: plain(a, targets_BP, weights_BP)[0])(rounded)
    assert sums.dtype == jnp.float32
    assert [x.dtype for x in slopes] == [x.dtype for x in arrays]
    np.testing.assert_allclose(sums, total, rtol=1e-5)
    for a, b in zip(slopes, expected, strict=True):
        assert np.linalg.norm(a.astype(np.float32) - b) < 0.01 * np.linalg.norm(b)


def test_a_place_of_weight_zero_counts_nothing(given):
    (h_BPD, w_VD, bias_V), targets_BP, weights_BP = given
    changed_BPD = np.where(weights_BP[..., None] > 0, h_BPD, 100.0)
    other_BP = np.where(weights_BP > 0, targets_BP, 0)
    assert (other_BP != targets_BP).any()
    before = ours((h_BPD, w_VD, bias_V), targets_BP, weights_BP, 2)
    after = ours((changed_BPD, w_VD, bias_V), other_BP, weights_BP, 2)
    jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.parametrize("differentiate", [False, True])
def test_no_array_holds_all_the_logits(given, differentiate):
    arrays, targets_BP, weights_BP = given

    def most(chunks):
        loss = lambda a: ours(a, targets_BP, weights_BP, chunks)["loss"].total  # noqa: E731
        program = jax.make_jaxpr(jax.grad(loss) if differentiate else loss)(arrays)
        return max(int(np.prod(var.aval.shape)) for var in arrays_in(program.jaxpr))

    assert most(chunks=1) == B * P * V
    assert most(chunks=7) < B * P * V / 2
