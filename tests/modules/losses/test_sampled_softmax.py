"""Ids drawn as they should be, and a loss that tends to the full softmax's."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.losses import sampled_softmax
from tests.support.compiler import quick_jit
from tests.support.jaxpr import arrays_in

pytestmark = pytest.mark.usefixtures("exactly")

B, P, V, D, S = 4, 6, 50, 8, 12


def probabilities(V):
    k = np.arange(V, dtype=np.float64)
    return np.log((k + 2) / (k + 1)) / np.log(V + 1)


def samples(many, S, V, seed=0):
    """Many samples, each of its own rng."""
    draw = quick_jit(jax.vmap(lambda rng: sampled_softmax.sample_negatives(rng, S, V)))
    return jax.device_get(draw(jax.random.split(jax.random.key(seed), many)))


def count_errors(ids, edges, V):
    """Counts ids between the edges, in deviations from what is expected."""
    above = np.log(edges + 1) / np.log(V + 1)  # the probability of an id below each edge
    expected = len(ids) * np.diff(above)
    return np.abs(np.histogram(ids, edges)[0] - expected) / np.sqrt(expected)


def test_each_draw_is_an_id_with_its_probability():
    V, edges = 793_471, np.linspace(10_000, 793_471, 40).astype(int)
    ids = np.asarray(sampled_softmax.sample_log_uniform(jax.random.key(1), 1_000_000, V))
    assert count_errors(ids, np.concatenate([np.arange(60), [1000], edges]), V).max() < 5
    rare = ids[ids > V // 2]  # so few that nearly all differ, if every one can be drawn
    n, among = len(rare), V - V // 2
    distinct = among * -math.expm1(n * math.log1p(-1 / among))
    assert abs(len(np.unique(rare)) - distinct) < 0.01 * distinct


@pytest.mark.parametrize(("S", "V"), [(49, 50), (1, 2), (300, 5000)])
def test_ids_are_distinct_and_of_the_vocabulary(S, V):
    found = samples(50, S, V)
    assert found.real_S.all()
    assert all(len(set(ids)) == S for ids in found.ids_S)
    assert found.ids_S.min() >= 0
    assert found.ids_S.max() < V


def test_ids_tries_and_expected_counts_are_those_of_drawing_in_turn():
    T = sampled_softmax.num_draws(S, V)
    draw = quick_jit(
        lambda rng: (
            sampled_softmax.sample_negatives(rng, S, V),
            sampled_softmax.sample_log_uniform(rng, T, V),
        )
    )
    for seed in range(3):
        rng = jax.random.key(seed)
        found, draws = draw(rng)
        queue = iter(np.asarray(draws).tolist())
        drawn: list[int] = []
        while len(set(drawn)) < S:
            drawn.append(next(queue))
        np.testing.assert_array_equal(found.ids_S, list(dict.fromkeys(drawn)))
        assert found.tries == len(drawn)
        expected_S = 1 - (1 - probabilities(V)[found.ids_S]) ** len(drawn)
        np.testing.assert_allclose(found.expected_S, expected_S, rtol=1e-5)


def test_where_draws_do_not_suffice_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(sampled_softmax, "num_draws", lambda S, V: S)
    found = samples(40, S, V)
    assert not found.real_S.all()
    for ids, real in zip(found.ids_S, found.real_S, strict=True):
        assert real[: real.sum()].all()
        assert len(set(ids[real])) == real.sum()
    assert (found.tries == S).all()


def test_enough_draws_fail_less_than_once_in_a_million():
    """A replay in NumPy for a sample that is nearly everything, the hardest case."""
    S, V = 19, 20
    T = sampled_softmax.num_draws(S, V)
    missing = [(1 - p) ** T for p in probabilities(V)]
    pairs = sum(a * b for i, a in enumerate(missing) for b in missing[:i])
    assert pairs < 1e-6  # two ids at once not drawn
    assert T < 3000


@pytest.fixture(scope="module")
def given():
    """(h, w, bias), targets, weights; weights differ and some are 0."""
    rng = np.random.default_rng(0)
    arrays = tuple(jnp.float32(rng.normal(0, 1, s)) for s in ((B, P, D), (V, D), V))
    weights_BP = rng.integers(0, 3, (B, P)).astype(np.float32) / 2
    return arrays, rng.integers(0, V, (B, P)), weights_BP


@pytest.fixture(scope="module")
def sample():
    return quick_jit(lambda: sampled_softmax.sample_negatives(jax.random.key(1), S, V))()


def word_by_word(arrays, targets_BP, weights_BP, sample):
    """The loss in float64, and its gradients, each position for itself."""
    h_BPD, w_VD, bias_V = (np.asarray(x, np.float64) for x in arrays)
    expected_V = 1 - (1 - probabilities(V)) ** float(sample.tries)
    grads, total = [np.zeros_like(x) for x in (h_BPD, w_VD, bias_V)], 0.0
    for b, p in np.ndindex(*targets_BP.shape):
        own = targets_BP[b, p]
        real = np.asarray(sample.ids_S)[np.asarray(sample.real_S)]
        ids = np.array([own] + [k for k in real if k != own])
        logits = w_VD[ids] @ h_BPD[b, p] + bias_V[ids] - np.log(expected_V[ids])
        shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        total -= weights_BP[b, p] * np.log(shares[0])
        grad = weights_BP[b, p] * (shares - (np.arange(len(ids)) == 0))
        grads[0][b, p] = grad @ w_VD[ids]
        np.add.at(grads[1], ids, grad[:, None] * h_BPD[b, p])
        np.add.at(grads[2], ids, grad)
    return total, grads


def compute_loss(arrays, targets_BP, weights_BP, sample, chunks=4):
    h_BPD, w_VD, bias_V = arrays
    return sampled_softmax.sampled_cross_entropy(
        h_BPD,
        V,
        lambda ids: (jnp.asarray(w_VD)[ids], jnp.asarray(bias_V)[ids]),
        targets_BP,
        weights_BP,
        sample,
        chunks=chunks,
    )


@pytest.mark.parametrize("chunks", [1, 4])
def test_loss_and_gradients_are_the_formula_s_for_any_number_of_chunks(given, sample, chunks):
    arrays, targets_BP, weights_BP = given
    real_S = sample.real_S.at[3].set(False)
    sample = sample._replace(real_S=real_S)
    assert np.isin(targets_BP, sample.ids_S[real_S]).any()
    loss = lambda a: 3 * compute_loss(a, targets_BP, weights_BP, sample, chunks)["loss"].total  # noqa: E731
    total, grads = quick_jit(jax.value_and_grad(loss))(arrays)
    expected, by_hand = word_by_word(arrays, targets_BP, weights_BP, sample)
    np.testing.assert_allclose(total, 3 * expected, rtol=1e-5)
    for found, hand in zip(grads, by_hand, strict=True):
        np.testing.assert_allclose(found, 3 * hand, atol=3e-5)


def test_states_in_bfloat16_give_a_float32_loss_and_gradients_of_each_dtype(given, sample):
    (h_BPD, w_VD, bias_V), targets_BP, weights_BP = given
    arrays = (jnp.asarray(h_BPD, jnp.bfloat16), w_VD, bias_V)
    loss = lambda a: compute_loss(a, targets_BP, weights_BP, sample)["loss"].total  # noqa: E731
    loss, grads = quick_jit(jax.value_and_grad(loss))(arrays)
    rounded = (*(np.asarray(jnp.bfloat16(x), np.float32) for x in (h_BPD, w_VD)), bias_V)
    total, expected = word_by_word(rounded, targets_BP, weights_BP, sample)
    assert loss.dtype == jnp.float32
    assert [x.dtype for x in grads] == [x.dtype for x in arrays]
    np.testing.assert_allclose(loss, total, rtol=1e-5)
    for a, b in zip(grads, expected, strict=True):
        assert np.linalg.norm(np.asarray(a, np.float32) - b) < 0.01 * np.linalg.norm(b)


def test_no_array_holds_all_the_logits(given):
    arrays, _, _ = given
    rng = np.random.default_rng(1)
    P, S = 40, 30
    h_BPD, targets_BP = np.zeros((B, P, D), np.float32), rng.integers(0, V, (B, P))
    weights_BP = np.ones((B, P))

    def most(chunks):
        def loss(h_BPD):
            sample = sampled_softmax.sample_negatives(jax.random.key(0), S, V)
            sums = compute_loss((h_BPD, *arrays[1:]), targets_BP, weights_BP, sample, chunks)
            return sums["loss"].total

        program = jax.make_jaxpr(jax.grad(loss))(h_BPD)
        return max(int(np.prod(var.aval.shape)) for var in arrays_in(program.jaxpr))

    assert most(chunks=1) == B * P * S
    assert most(chunks=10) < B * P * S / 3


@pytest.mark.parametrize("S", [0, 50, 60])
def test_as_many_negatives_as_there_are_ids_are_refused(S):
    with pytest.raises(ValueError, match=f"{S} negatives of 50 ids.*full softmax"):
        sampled_softmax.sample_negatives(jax.random.key(0), S, V)


def test_negatives_that_would_take_absurdly_many_draws_are_refused():
    with pytest.raises(ValueError, match="699999 distinct negatives of 700000 ids take more than"):
        sampled_softmax.sample_negatives(jax.random.key(0), 699_999, 700_000)
