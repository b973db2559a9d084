"""A weighted average of layers, to which padding does not matter."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from modules.layers.scalar_mix import ScalarMix

N, B, L, D = 3, 2, 4, 5


def draw():
    """Layers of unlike means and deviations, what is valid, and weights of two mixes."""
    rng = np.random.default_rng(0)
    h_NBLD = rng.normal(0, 1, (N, B, L, D)) * [[[[1]]], [[[3]]], [[[0.1]]]] + 2
    valid_BL = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)
    w_N = np.array([[0.3, -1, 2], [0, 5, 0]])
    params = {"w_N": w_N.astype(np.float32), "gamma": np.array([1.5, -2], np.float32)}
    return h_NBLD.astype(np.float32), valid_BL, {"params": params}


def by_hand(h_NBLD, valid_BL, params, norm):
    h, w = h_NBLD.astype(np.float64), params["params"]["w_N"].astype(np.float64)
    if norm:
        for n in range(N):
            numbers = np.array([h[n, b, i, d] for b, i, d in np.ndindex(B, L, D) if valid_BL[b, i]])
            h[n] = (h[n] - numbers.mean()) / np.sqrt(numbers.var() + 1e-12)
    mixes = []
    for m, gamma in enumerate(params["params"]["gamma"]):
        shares = np.exp(w[m]) / np.exp(w[m]).sum()
        mixes.append(gamma * sum(shares[n] * h[n] for n in range(N)))
    return np.stack(mixes)


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_mixes_are_the_formula_s(norm, padded):
    h_NBLD, valid_BL, params = draw()
    valid_BL = valid_BL if padded else np.ones_like(valid_BL)
    found = ScalarMix(N, mixes=2, norm=norm).apply(params, h_NBLD, valid_BL)
    assert found.shape == (2, B, L, D)
    np.testing.assert_allclose(found, by_hand(h_NBLD, valid_BL, params, norm), atol=2e-5)


@pytest.mark.parametrize("norm", [False, True])
def test_what_stands_at_padding_moves_nothing_else(norm):
    h_NBLD, valid_BL, params = draw()
    other_NBLD = np.where(valid_BL[None, ..., None], h_NBLD, 1000.0).astype(np.float32)
    mix = ScalarMix(N, mixes=2, norm=norm)
    before, after = (mix.apply(params, h, valid_BL) for h in (h_NBLD, other_NBLD))
    np.testing.assert_array_equal(before[:, valid_BL], after[:, valid_BL])
    assert (np.abs(before - after)[:, ~valid_BL] > 1).any()


def test_none_for_valid_means_all():
    h_NBLD, valid_BL, params = draw()
    mix = ScalarMix(N, mixes=2, norm=True)
    everything = mix.apply(params, h_NBLD, np.ones_like(valid_BL))
    np.testing.assert_array_equal(mix.apply(params, h_NBLD), everything)
    assert np.abs(mix.apply(params, h_NBLD, valid_BL) - everything).max() > 0.01


def test_it_begins_as_the_plain_average():
    h_NBLD, valid_BL, _ = draw()
    mix = ScalarMix(N)
    found = mix.apply(mix.init(jax.random.key(0), h_NBLD, valid_BL), h_NBLD, valid_BL)
    np.testing.assert_allclose(found[0], h_NBLD.mean(0), rtol=1e-5)


def fitted(strength):
    """Weights that gave all but the second layer up, as far as the penalty allows."""
    h_NBLD, _, _ = draw()
    mix, tx = ScalarMix(N), optax.adam(0.02)
    params = mix.init(jax.random.key(0), h_NBLD)
    state = tx.init(params)

    def loss(params):
        error = jnp.square(mix.apply(params, h_NBLD)[0] - h_NBLD[1]).mean()
        return error + mix.apply(params, strength, method="penalty")

    @jax.jit
    def step(params, state):
        updates, state = tx.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    for _ in range(300):
        params, state = step(params, state)
    return jax.nn.softmax(params["params"]["w_N"][0])


def test_a_large_penalty_pulls_to_the_average_and_a_small_one_lets_a_layer_win():
    free, held = fitted(0.0), fitted(100.0)
    assert free[1] > 0.8
    np.testing.assert_allclose(held, 1 / N, atol=0.01)


def test_the_penalty_is_the_sum_of_squares_of_every_mix_s_raw_weights():
    _, _, params = draw()
    found = ScalarMix(N, mixes=2).apply(params, 0.1, method="penalty")
    np.testing.assert_allclose(found, 0.1 * (0.3**2 + 1 + 4 + 25), rtol=1e-6)


def test_mixes_keep_the_states_dtype():
    h_NBLD, valid_BL, params = draw()
    mix = ScalarMix(N, mixes=2, norm=True)
    rounded_NBLD = jnp.asarray(h_NBLD, jnp.bfloat16)
    half = mix.apply(params, rounded_NBLD, valid_BL)
    assert half.dtype == jnp.bfloat16
    whole = by_hand(np.asarray(rounded_NBLD, np.float32), valid_BL, params, norm=True)
    assert np.linalg.norm(half.astype(np.float32) - whole) < 0.02 * np.linalg.norm(whole)


def test_other_than_n_layers_are_refused():
    with pytest.raises(ValueError, match="N=4 layers are mixed, 3 are given"):
        ScalarMix(4).init(jax.random.key(0), draw()[0])
