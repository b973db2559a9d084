"""The memory holds the newest states, whatever a window reuses of itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from modules.layers.segment_memory import update_memory


@pytest.mark.parametrize(("reuse_len", "newest"), [(0, [3, 4, 5]), (1, [1, 2, 3]), (2, [2, 3, 4])])
def test_the_memory_is_the_last_states_up_to_those_reused(reuse_len, newest):
    memory_BMD, h_BLD = (jnp.array(x, jnp.float32)[None, :, None] for x in ([0, 1, 2], [3, 4, 5]))
    new_BMD = update_memory(memory_BMD, h_BLD, reuse_len)
    np.testing.assert_array_equal(new_BMD[0, :, 0], newest)


def test_no_gradient_enters_the_memory_and_none_stays_none():
    h_BLD = jnp.ones((1, 2, 1))
    grad = jax.grad(lambda x: update_memory(jnp.zeros((1, 2, 1)), x, 0).sum())(h_BLD)
    assert not np.any(grad)
    assert update_memory(None, h_BLD, 0) is None
