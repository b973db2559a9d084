"""Keys and values of one layer are kept row by row."""

import jax.numpy as jnp
import numpy as np

from modules.layers.attention import KVCache
from tests.support.arrays import draw

B, L, H, K = 2, 8, 2, 8


def test_new_keys_stand_behind_those_of_their_own_row():
    lengths = [3, 0]
    past = KVCache(jnp.array(draw(B, L, H, K)), jnp.array(draw(B, L, H, K)), jnp.array(lengths))
    new = draw(B, 2, H, K, seed=2), draw(B, 2, H, K, seed=3)
    now = past.append(*new)
    pairs = (past.k_NBJHK, now.k_NBJHK), (past.v_NBJHK, now.v_NBJHK)
    for (old, written), added in zip(pairs, new, strict=True):
        for b, n in enumerate(lengths):
            expected = np.concatenate([old[b, :n], added[b], old[b, n + 2 :]])
            np.testing.assert_array_equal(written[b], expected)
