"""Keys and values of one layer are kept row by row."""

import jax.numpy as jnp
import numpy as np

from modules.layers.attention import KVCache

B, L, H, K = 2, 8, 2, 8


def draw(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(0, 1, shape), jnp.float32)


def test_new_keys_stand_behind_those_of_their_own_row():
    length_B = jnp.array([3, 0])
    past = KVCache(draw(0, B, L, H, K), draw(1, B, L, H, K), length_B)
    new = draw(2, B, 2, H, K), draw(3, B, 2, H, K)
    now = past.append(*new)
    pairs = (past.k_NBJHK, now.k_NBJHK), (past.v_NBJHK, now.v_NBJHK)
    for (old, written), fresh in zip(pairs, new, strict=True):
        for b, n in enumerate(length_B):
            np.testing.assert_array_equal(written[b, n : n + 2], fresh[b])
            np.testing.assert_array_equal(written[b, :n], old[b, :n])
            np.testing.assert_array_equal(written[b, n + 2 :], old[b, n + 2 :])
