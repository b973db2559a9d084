"""Ids drawn as they should be, and a loss that tends to the full softmax's."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.activation_sharding import sharding_context
from modules.losses import cross_entropy, sampled_softmax
from pretrain.distributed.sharding import Layout, make_mesh
from tests.support.jaxpr import arrays_in

B, P, V, D, S = 4, 6, 50, 8, 12


def probabilities(V):
    k = np.arange(V, dtype=np.float64)
    return np.log((k + 2) / (k + 1)) / np.log(V + 1)


def samples(many, S, V, seed=0):
    """Many samples, each of its own rng."""
    draw = jax.jit(jax.vmap(lambda rng: sampled_softmax.sample_negatives(rng, S, V)))
    return jax.device_get(draw(jax.random.split(jax.random.key(seed), many)))


@pytest.mark.parametrize("V", [2, 50, 793_471])
def test_probabilities_are_the_formula_s_and_sum_to_one(V):
    found = np.asarray(sampled_softmax.log_uniform_prob(jnp.arange(V), V), np.float64)
    np.testing.assert_allclose(found, probabilities(V), rtol=2e-5)
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-6)


def test_each_draw_is_an_id_with_its_probability():
    many, V = 400_000, 60
    ids = np.asarray(sampled_softmax.sample_log_uniform(jax.random.key(0), many, V))
    expected = many * probabilities(V)
    chi_square = ((np.bincount(ids, minlength=V) - expected) ** 2 / expected).sum()
    assert abs(chi_square - (V - 1)) < 5 * math.sqrt(2 * (V - 1))


def test_rare_ids_of_a_large_vocabulary_are_all_drawn_alike():
    many, V = 4_000_000, 793_471
    ids = np.asarray(sampled_softmax.sample_log_uniform(jax.random.key(1), many, V))
    assert ids.min() == 0
    assert ids.max() > V - 50
    edges = np.concatenate([[0, 1, 2, 10, 1000], np.linspace(10_000, V, 40).astype(int)])
    above = np.log(edges + 1) / np.log(V + 1)  # the chance of an id below each edge
    expected = many * np.diff(above)
    found = np.histogram(ids, edges)[0]
    assert (np.abs(found - expected) < 5 * np.sqrt(expected)).all()
    rare = ids[ids > V // 2]  # so few that nearly all differ, if every one can be drawn
    n, among = len(rare), V - V // 2
    distinct = among * -math.expm1(n * math.log1p(-1 / among))
    assert abs(len(np.unique(rare)) - distinct) < 0.01 * distinct


@pytest.mark.parametrize(("S", "V"), [(12, 50), (49, 50), (1, 2), (300, 5000)])
def test_ids_are_distinct_and_of_the_vocabulary(S, V):
    found = samples(50, S, V)
    assert found.real_S.all()
    assert all(len(set(ids)) == S for ids in found.ids_S)
    assert found.ids_S.min() >= 0
    assert found.ids_S.max() < V


def test_ids_and_tries_are_those_of_drawing_until_there_are_enough():
    for seed in range(20):
        rng = jax.random.key(seed)
        found = sampled_softmax.sample_negatives(rng, S, V)
        draws = sampled_softmax.sample_log_uniform(rng, sampled_softmax.num_draws(S, V), V)
        queue = iter(np.asarray(draws).tolist())
        drawn: list[int] = []
        while len(set(drawn)) < S:
            drawn.append(next(queue))
        np.testing.assert_array_equal(found.ids_S, list(dict.fromkeys(drawn)))
        assert found.tries == len(drawn)


def test_where_draws_do_not_suffice_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(sampled_softmax, "num_draws", lambda S, V: S)
    found = samples(40, S, V)
    assert not found.real_S.all()
    for ids, real in zip(found.ids_S, found.real_S, strict=True):
        assert real[: real.sum()].all()
        assert len(set(ids[real])) == real.sum()
    assert (found.tries == S).all()


def test_an_id_is_among_the_sample_as_often_as_is_expected():
    """Given the tries, as TensorFlow has it; the truth stops at S distinct, so nearly."""
    many = 20_000
    found = samples(many, S, V)
    share_V = np.bincount(found.ids_S.reshape(-1), minlength=V) / many
    p_V = probabilities(V)
    expected_V = np.mean([1 - (1 - p_V) ** t for t in found.tries[:5000]], axis=0)
    np.testing.assert_allclose(share_V, expected_V, atol=0.02)
    np.testing.assert_allclose(expected_V.sum(), S, rtol=0.02)


def test_expected_counts_are_the_closed_form_s():
    found = samples(10, S, V)
    for ids, expected, tries in zip(found.ids_S, found.expected_S, found.tries, strict=True):
        np.testing.assert_allclose(expected, 1 - (1 - probabilities(V)[ids]) ** tries, rtol=1e-5)


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


@pytest.fixture(autouse=True)
def exact_products():
    with jax.default_matmul_precision("highest"):
        yield


def word_by_word(arrays, targets_BP, weights_BP, sample):
    """The loss in float64, and its gradients, each position for itself."""
    h_BPD, w_VD, bias_V = (np.asarray(x, np.float64) for x in arrays)
    expected_V = 1 - (1 - probabilities(V)) ** float(sample.tries)
    slopes, total = [np.zeros_like(x) for x in (h_BPD, w_VD, bias_V)], 0.0
    for b, p in np.ndindex(*targets_BP.shape):
        own = targets_BP[b, p]
        real = np.asarray(sample.ids_S)[np.asarray(sample.real_S)]
        ids = np.array([own] + [k for k in real if k != own])
        logits = w_VD[ids] @ h_BPD[b, p] + bias_V[ids] - np.log(expected_V[ids])
        shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        total -= weights_BP[b, p] * np.log(shares[0])
        slope = weights_BP[b, p] * (shares - (np.arange(len(ids)) == 0))
        slopes[0][b, p] = slope @ w_VD[ids]
        np.add.at(slopes[1], ids, slope[:, None] * h_BPD[b, p])
        np.add.at(slopes[2], ids, slope)
    return total, slopes


def ours(arrays, targets_BP, weights_BP, sample, chunks=4):
    return sampled_softmax.sampled_cross_entropy(
        *arrays, targets_BP, weights_BP, sample, chunks=chunks
    )


@pytest.mark.parametrize("chunks", [1, 4, 9])
def test_loss_and_gradients_are_the_formula_s_for_any_number_of_chunks(given, chunks):
    arrays, targets_BP, weights_BP = given
    sample = sampled_softmax.sample_negatives(jax.random.key(1), S, V)
    real_S = sample.real_S.at[3].set(False)
    sample = sample._replace(real_S=real_S)
    assert np.isin(targets_BP, sample.ids_S[real_S]).any()
    loss = lambda a: 3 * ours(a, targets_BP, weights_BP, sample, chunks)["loss"].total  # noqa: E731
    total, slopes = jax.value_and_grad(loss)(arrays)
    expected, by_hand = word_by_word(arrays, targets_BP, weights_BP, sample)
    np.testing.assert_allclose(total, 3 * expected, rtol=1e-5)
    for found, hand in zip(slopes, by_hand, strict=True):
        np.testing.assert_allclose(found, 3 * hand, atol=3e-5)
    assert ours(arrays, targets_BP, weights_BP, sample)["loss"].weight == weights_BP.sum()


def test_no_biases_are_biases_of_zero(given):
    (h_BPD, w_VD, bias_V), targets_BP, weights_BP = given
    sample = sampled_softmax.sample_negatives(jax.random.key(1), S, V)

    def run(arrays, bias_V):
        return ours((*arrays, bias_V), targets_BP, weights_BP, sample)["loss"].total

    none = jax.value_and_grad(run)((h_BPD, w_VD), None)
    zero = jax.value_and_grad(run)((h_BPD, w_VD), 0 * bias_V)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), none, zero)


def test_a_negative_that_is_the_target_never_counts(given):
    arrays, _, weights_BP = given
    sample = sampled_softmax.sample_negatives(jax.random.key(1), S, V)
    targets_BP = np.full((B, P), sample.ids_S[5])
    another = sample.ids_S.at[5].set(next(k for k in range(V) if k not in sample.ids_S))

    def loss(sample):
        return ours(arrays, targets_BP, weights_BP, sample)["loss"].total

    assert loss(sample) == loss(sample._replace(real_S=sample.real_S.at[5].set(False)))
    assert loss(sample) < loss(sample._replace(ids_S=another))


def bias_of(many, S, given):
    """How far the mean over many samples is from the full softmax: loss, gradient by h."""
    arrays, targets_BP, weights_BP = given

    def full(h_BPD):
        sums = cross_entropy.softmax_cross_entropy(
            h_BPD, *arrays[1:], targets_BP, weights_BP, chunks=1
        )
        return sums["loss"].total

    def one(h_BPD, rng):
        sample = sampled_softmax.sample_negatives(rng, S, V)
        return ours((h_BPD, *arrays[1:]), targets_BP, weights_BP, sample, 1)["loss"].total

    rngs = jax.random.split(jax.random.key(2), many)
    each = jax.jit(jax.vmap(jax.value_and_grad(one), in_axes=(None, 0)))
    means = [x.mean(0) for x in each(arrays[0], rngs)]
    truth = jax.value_and_grad(full)(arrays[0])
    pairs = zip(means, truth, strict=True)
    return [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs]


def test_averaged_over_samples_loss_and_gradient_tend_to_the_full_softmax_s(given):
    few, more, most = (bias_of(1000, S, given) for S in (4, 24, V - 1))
    assert few[0] > 0.05  # what there is to lose
    for kind in (0, 1):
        assert more[kind] < few[kind] / 2
        assert most[kind] < more[kind] / 4
    assert max(most) < 0.01


def test_a_sample_of_all_that_has_weight_is_the_full_softmax(given):
    (h_BPD, w_VD, bias_V), targets_BP, weights_BP = given
    bias_V = bias_V - 100 * (np.arange(V) == V - 1)  # the last one is never the answer
    targets_BP = np.minimum(targets_BP, V - 2)
    ones, tries = np.ones(V - 1, np.float32), np.float32(1e5)
    sample = sampled_softmax.Sample(np.arange(V - 1), ones, ones > 0, tries)
    arrays = (h_BPD, w_VD, bias_V)
    found = ours(arrays, targets_BP, weights_BP, sample)["loss"].total
    full = cross_entropy.softmax_cross_entropy(*arrays, targets_BP, weights_BP)["loss"].total
    np.testing.assert_allclose(found, full, rtol=1e-5)


def test_states_in_bfloat16_give_a_float32_loss_and_gradients_of_each_dtype(given):
    (h_BPD, w_VD, bias_V), targets_BP, weights_BP = given
    sample = sampled_softmax.sample_negatives(jax.random.key(1), S, V)
    arrays = (jnp.asarray(h_BPD, jnp.bfloat16), w_VD, bias_V)
    loss, slopes = jax.value_and_grad(
        lambda a: ours(a, targets_BP, weights_BP, sample)["loss"].total
    )(arrays)
    rounded = (*(np.asarray(jnp.bfloat16(x), np.float32) for x in (h_BPD, w_VD)), bias_V)
    total, expected = word_by_word(rounded, targets_BP, weights_BP, sample)
    assert loss.dtype == jnp.float32
    assert [x.dtype for x in slopes] == [x.dtype for x in arrays]
    np.testing.assert_allclose(loss, total, rtol=1e-5)
    for a, b in zip(slopes, expected, strict=True):
        assert np.linalg.norm(np.asarray(a, np.float32) - b) < 0.01 * np.linalg.norm(b)


@pytest.mark.parametrize("shape", [(1, 1, 2), (2, 2, 2)])
def test_loss_and_gradients_are_the_same_on_a_mesh_that_splits_the_vocabulary(given, shape):
    arrays, targets_BP, weights_BP = given

    def run(arrays, targets_BP, weights_BP):
        sample = sampled_softmax.sample_negatives(jax.random.key(1), S, V)
        return ours(arrays, targets_BP, weights_BP, sample, 3)["loss"].total

    expected = jax.value_and_grad(run)(arrays, targets_BP, weights_BP)
    layout = Layout(make_mesh(*shape, devices=jax.devices()[: math.prod(shape)]))
    names = ("h_BPD", "w_VD", "bias_V", "targets_BP", "weights_BP")
    named = dict(zip(names, (*arrays, targets_BP, weights_BP), strict=True))
    put = jax.tree.map(jax.device_put, named, layout.of(named))
    assert put["w_VD"].addressable_shards[0].data.shape[0] == V // 2
    with sharding_context(layout):
        arguments = tuple(put[name] for name in names[:3]), put["targets_BP"], put["weights_BP"]
        found = jax.jit(jax.value_and_grad(run))(*arguments)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, expected)


def test_no_array_holds_all_the_logits(given):
    arrays, _, _ = given
    rng = np.random.default_rng(1)
    P, S = 40, 30
    h_BPD, targets_BP = np.zeros((B, P, D), np.float32), rng.integers(0, V, (B, P))
    weights_BP, sample = np.ones((B, P)), sampled_softmax.sample_negatives(jax.random.key(0), S, V)

    def most(chunks):
        def loss(h_BPD):
            return ours((h_BPD, *arrays[1:]), targets_BP, weights_BP, sample, chunks)["loss"].total

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
