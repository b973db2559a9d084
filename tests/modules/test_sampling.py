"""Positions are sampled without a bias, in exact numbers."""

import jax
import numpy as np

from modules.sampling import sample_positions


def test_positions_are_uniform_over_the_eligible():
    eligible_L = np.arange(24) % 3 > 0
    keys = jax.random.split(jax.random.key(0), 4000)
    picked_nL = np.asarray(jax.vmap(lambda key: sample_positions(key, eligible_L, 4))(keys))
    assert (picked_nL.sum(1) == 4).all()
    assert not picked_nL[:, ~eligible_L].any()
    share_L = picked_nL.mean(0)[eligible_L]
    np.testing.assert_allclose(share_L, 4 / 16, atol=5 * np.sqrt(0.25 * 0.75 / 4000))
