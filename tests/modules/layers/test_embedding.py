"""The embedding is the sum of three rows of three tables."""

import functools

import jax
import numpy as np

from modules.layers.embedding import Embedding
from tests.support.compiler import quick_jit


def test_a_state_is_the_sum_of_its_token_position_and_segment():
    fields = dict(normed_embedding=False, epsilon=1e-6, dropout=0.0, dtype="float32")
    inits = dict(initializer="normal", init_scale=1.0, position_scale=0.0)
    layer = Embedding(V=9, D=4, L=6, S=2, **(dict(embedding_size=0) | fields), **inits)
    tokens_BL, segments_BL = np.array([[1, 8, 3], [0, 0, 5]]), np.array([[0, 1, 1], [1, 0, 0]])
    positions_BL = np.array([[0, 1, 2], [5, 0, 1]])
    args = (tokens_BL, segments_BL, positions_BL)
    init = quick_jit(functools.partial(layer.init_with_output, train=False))
    x_BLD, tree = init(jax.random.key(0), *args)
    token_VD, position_LD, segment_SD = (
        np.asarray(tree["params"][name]) for name in ("token_VD", "position_LD", "segment_SD")
    )
    expected_BLD = token_VD[tokens_BL] + position_LD[positions_BL] + segment_SD[segments_BL]
    np.testing.assert_allclose(x_BLD, expected_BLD, rtol=1e-5, atol=1e-6)
    plain, edited = (
        layer.apply(tree, *args, edit=edit, train=False) for edit in (None, lambda x_BLD: 2 * x_BLD)
    )
    np.testing.assert_array_equal(edited, 2 * plain)
    in_order = layer.apply(tree, tokens_BL, None, None, train=False)
    expected_BLD = token_VD[tokens_BL] + position_LD[:3] + segment_SD[0]
    np.testing.assert_allclose(in_order, expected_BLD, rtol=1e-5, atol=1e-6)
