"""The cache is the paper's sum over the positions before, from batch to batch."""

import jax.numpy as jnp
import numpy as np

from modules.losses import neural_cache

B, L, D, W, V, THETA, SHARE = 2, 4, 3, 5, 4, 0.7, 0.3
VALID_NBL = np.arange(L) < np.array([[[4], [2]], [[3], [4]], [[4], [1]]])


def look_back(h_TD, next_T, t):
    """One position of one row, of whose text everything is given."""
    past = range(max(0, t - W), t)
    weights = np.array([np.exp(THETA * h_TD[t] @ h_TD[i]) for i in past])
    hits = [w for w, i in zip(weights, past, strict=True) if next_T[i] == next_T[t]]
    return sum(hits) / weights.sum() if len(past) else None


def test_each_word_is_as_likely_as_the_alike_states_before_say():
    rng = np.random.default_rng(0)
    h_NBLD = rng.normal(size=(len(VALID_NBL), B, L, D)).astype(np.float32)
    next_NBL = rng.integers(0, V, (len(VALID_NBL), B, L))
    cache = neural_cache.init_cache(B, W, D, jnp.float32)
    found = []
    for batch in zip(h_NBLD, next_NBL, VALID_NBL, strict=True):
        p_BL, is_filled_BL, cache = neural_cache.predict(cache, *batch, THETA)
        nats_BL = jnp.full((B, L), np.log(0.25))
        found.append((p_BL, neural_cache.mix(nats_BL, p_BL, is_filled_BL, SHARE)))
    for b in range(B):
        places = [(n, i) for n, i in np.ndindex(len(VALID_NBL), L) if VALID_NBL[n, b, i]]
        h_TD = np.array([h_NBLD[n, b, i] for n, i in places])
        next_T = [next_NBL[n, b, i] for n, i in places]
        for t, (n, i) in enumerate(places):
            p, nats = (x[b, i] for x in found[n])
            expected = look_back(h_TD, next_T, t)
            mixed = 0.25 if expected is None else (1 - SHARE) * 0.25 + SHARE * expected
            np.testing.assert_allclose(p, expected or 0, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(nats, np.log(mixed), rtol=1e-5)


def test_a_word_too_unlikely_for_float32_stays_as_unlikely():
    nats_BL, p_BL = jnp.array([[-120.0, -120.0]]), jnp.array([[0.0, 0.5]])
    mixed_BL = neural_cache.mix(nats_BL, p_BL, jnp.ones((1, 2), bool), SHARE)
    expected = [np.log1p(-SHARE) - 120, np.log(SHARE * 0.5)]
    np.testing.assert_allclose(mixed_BL[0], expected, rtol=1e-6)
