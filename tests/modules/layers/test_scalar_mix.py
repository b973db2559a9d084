"""A weighted average of layers, whose weights are learned."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers.scalar_mix import ScalarMix
from tests.support.arrays import draw

N, B, L, D = 3, 2, 4, 5
H_NBLD = draw(N, B, L, D)
W_N = np.array([[0.3, -1, 2], [0, 5, 0]], np.float32)
GAMMA = np.array([1.5, -2], np.float32)
PARAMS = {"params": {"w_N": W_N, "gamma": GAMMA}}


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 2e-5), ("bfloat16", 0.1)])
def test_mixes_are_the_formula_s_in_the_states_dtype(dtype, atol):
    found = ScalarMix(N, mixes=2).apply(PARAMS, jnp.asarray(H_NBLD, dtype))
    shares_N = np.exp(W_N) / np.exp(W_N).sum(1, keepdims=True)
    assert found.dtype == dtype
    expected = np.einsum("m,mN,NBLD->mBLD", GAMMA, shares_N, H_NBLD)
    np.testing.assert_allclose(found.astype(np.float32), expected, atol=atol)


def test_it_begins_as_the_plain_average():
    found, _ = ScalarMix(N).init_with_output(jax.random.key(0), H_NBLD)
    np.testing.assert_allclose(found[0], H_NBLD.mean(0), atol=1e-6)


def test_the_penalty_is_the_sum_of_squares_of_every_mix_s_raw_weights():
    found = ScalarMix(N, mixes=2).apply(PARAMS, 0.1, method="penalty")
    np.testing.assert_allclose(found, 0.1 * (0.3**2 + 1 + 4 + 25), rtol=1e-6)


def test_other_than_n_layers_are_refused():
    with pytest.raises(ValueError, match="N=4 layers are mixed, 3 are given"):
        ScalarMix(4).init(jax.random.key(0), H_NBLD)
