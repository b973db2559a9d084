"""Layers of LSTMs that read from text to text."""

import jax
import jax.numpy as jnp
import numpy as np

from modules.layers.lstm_stack import LSTMStack

B, Z, L, D, N = 2, 2, 6, 4, 2


def test_a_text_in_two_parts_is_the_text_at_once():
    stack = LSTMStack(
        D=D,
        U=5,
        N=N,
        Z=Z,
        clip_cell=3.0,
        clip_projection=3.0,
        residual=True,
        dropout=0.0,
        dtype="float32",
        unroll=1,
    )
    x_BZLD = jax.random.normal(jax.random.key(0), (B, Z, L, D))
    valid_BZL = jnp.ones((B, Z, L), bool)
    tree = stack.init(jax.random.key(1), x_BZLD, None, valid_BZL, None, train=False)

    def read(part, state):
        given = (x_BZLD[:, :, part], state, valid_BZL[:, :, part], None)
        return stack.apply(tree, *given, train=False)

    whole, end = read(slice(L), None)
    first, middle = read(slice(2), None)
    second, last = read(slice(2, L), middle)
    assert len(whole) == N + 1
    np.testing.assert_array_equal(whole[0], x_BZLD)
    for all_BZLD, *parts in zip(whole, first, second, strict=True):
        np.testing.assert_allclose(np.concatenate(parts, 2), all_BZLD, atol=1e-6)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), last, end)
