"""A block's scores are those of each query and key, their distance and their segments."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import gpu_exchange, gpu_scores, gpu_warpgroup
from modules.kernels.gpu_scores import HIDDEN, LOG2E, Pair
from tests.support.arrays import draw

K = 64
Q, Q_POSITION, KEYS, LOW, HIGH = (draw(64, K, seed=n) for n in range(5))
ANSWER = draw(64, seed=5)
SEGMENTS = np.arange(64) % 3, np.arange(64) % 2  # of queries, of keys
END = np.arange(64) + 30
PLAN = types.SimpleNamespace(K=K, terms="distances", is_interpreted=True, exchange=gpu_exchange)


@pytest.mark.parametrize("axis", [0, 1])
def test_scores_are_those_of_each_pair(axis):
    first_key = 7
    pair = Pair(
        {"q": Q, "q_position": Q_POSITION, "answer": ANSWER},
        {"k": KEYS, "distances": [LOW, HIGH]},
        {"end": jnp.asarray(END), "segment": jnp.asarray(SEGMENTS[0])},
        {"key_segment": jnp.asarray(SEGMENTS[1])},
        query=0,
        key=gpu_scores.index_keys(gpu_warpgroup, PLAN, first_key, (64, 64), 1 - axis),
        axis=axis,
    )
    found = np.asarray(gpu_scores.score(gpu_warpgroup, PLAN, pair, None, None))
    found = found if axis == 0 else found.T
    distances = np.concatenate([LOW, HIGH])
    for i in range(64):
        for j in range(64):
            score = (Q[i] @ KEYS[j] + Q_POSITION[i] @ distances[63 - i + j]) * K**-0.5
            score += ANSWER[i] * (SEGMENTS[0][i] != SEGMENTS[1][j])
            expected = score * LOG2E if first_key + j < END[i] else HIDDEN
            np.testing.assert_allclose(found[i, j], expected, rtol=1e-4, atol=1e-4)
