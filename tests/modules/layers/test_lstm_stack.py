"""Layers of LSTMs that read from text to text."""

import jax
import jax.numpy as jnp
import numpy as np

from modules.layers.lstm_stack import LSTMStack
from tests.support.arrays import draw, draw_variables
from tests.support.compiler import quick_jit

B, Z, L, D, N = 2, 2, 6, 4, 2


def test_a_text_in_two_parts_is_the_text_at_once():
    sizes = dict(D=D, U=5, N=N, Z=Z, clip_cell=3.0, clip_projection=3.0)
    stack = LSTMStack(**sizes, residual=True, dropout=0.0, dtype="float32", unroll=1)
    x_BZLD = draw(B, Z, L, D)
    valid_BZL = jnp.ones((B, Z, L), bool)
    given = (jax.random.key(1), x_BZLD, None, valid_BZL, None)
    tree = draw_variables(stack.init, *given, train=False, scale=0.5)

    @quick_jit
    def run(x_BZLD, state, valid_BZL):
        return stack.apply(tree, x_BZLD, state, valid_BZL, None, train=False)

    def read(part, state):
        return run(x_BZLD[:, :, part], state, valid_BZL[:, :, part])

    whole, end = read(slice(L), None)
    first, middle = read(slice(3), None)
    second, last = read(slice(3, L), middle)
    assert len(whole) == N + 1
    np.testing.assert_array_equal(whole[0], x_BZLD)
    for all_BZLD, *parts in zip(whole, first, second, strict=True):
        np.testing.assert_allclose(np.concatenate(parts, 2), all_BZLD, atol=1e-6)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), last, end)
