"""A block's scores are those of each query and key, their distance and their segments."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import gpu_exchange, gpu_scores, gpu_warpgroup
from modules.kernels.gpu_scores import HIDDEN, LOG2E, Pair
from tests.support.arrays import draw

K = 64
Q, Q_POSITION, *KEYS = (draw(64, K, seed=n) for n in range(4))
DISTANCES = [draw(64, K, seed=n) for n in range(4, 7)]  # the blocks of two steps
ANSWER = draw(64, seed=7)
SEGMENTS = np.arange(64) % 3, np.arange(64) % 2  # of queries, of keys
END = np.arange(64) + 30
PLAN = types.SimpleNamespace(K=K, terms="distances", is_interpreted=True, exchange=gpu_exchange)
PLACE = types.SimpleNamespace(group=0, count=2)


class Memory(np.ndarray):
    """Shared memory: its `at` is a part of it."""

    @property
    def at(self):
        return self


def make_scratch():
    blocks = {"roll": np.zeros((1, 64, 72), np.float32), "slide": np.zeros((1, 2, 64, 72))}
    return types.SimpleNamespace(extra={name: x.view(Memory) for name, x in blocks.items()})


@pytest.mark.parametrize("axis", [0, 1])
def test_scores_are_those_of_each_pair(axis):
    scratch = make_scratch()
    for step in range(2):
        first_key = 7 + 64 * step
        low, high = DISTANCES[step : step + 2]
        pair = Pair(
            {"q": Q, "q_position": Q_POSITION, "answer": ANSWER},
            # Queries that walk over keys have met the first block in the step before.
            {"k": KEYS[step], "distances": [None if axis == 0 and step else low, high]},
            {"end": jnp.asarray(END), "segment": jnp.asarray(SEGMENTS[0])},
            {"key_segment": jnp.asarray(SEGMENTS[1])},
            query=0,
            key=gpu_scores.index_keys(gpu_warpgroup, PLAN, first_key, (64, 64), 1 - axis),
            axis=axis,
            step=step,
        )
        found = np.asarray(gpu_scores.score(gpu_warpgroup, PLAN, pair, scratch, PLACE))
        found = found if axis == 0 else found.T
        distances = np.concatenate([low, high])
        for i in range(64):
            for j in range(64):
                score = (Q[i] @ KEYS[step][j] + Q_POSITION[i] @ distances[63 - i + j]) * K**-0.5
                score += ANSWER[i] * (SEGMENTS[0][i] != SEGMENTS[1][j])
                expected = score * LOG2E if first_key + j < END[i] else HIDDEN
                np.testing.assert_allclose(found[i, j], expected, rtol=1e-4, atol=1e-4)


def test_gradients_of_terms_are_summed_over_the_steps():
    scratch = make_scratch()
    das = [draw(64, 64, seed=n) for n in (8, 9)]
    grads = {
        "dq_position": jnp.zeros((64, K)),
        "danswer": jnp.zeros(64),
        "draw": jnp.zeros((64, 64)),
    }
    expected, danswer = np.zeros((64, K)), np.zeros(64)
    for step, da in enumerate(das):
        keys = {"distances": DISTANCES[step : step + 2]}
        columns = {"segment": jnp.asarray(SEGMENTS[0])}
        rows = {"key_segment": jnp.asarray(SEGMENTS[1])}
        pair = Pair({}, keys, columns, rows, query=0, key=None, axis=0, step=step)
        grads = gpu_scores.add_term_grads(gpu_warpgroup, PLAN, pair, scratch, PLACE, da, grads)
        distances = np.concatenate(keys["distances"])
        for i in range(64):
            expected[i] += da[i] @ distances[63 - i : 127 - i]
        danswer += (da * (SEGMENTS[0][:, None] != SEGMENTS[1])).sum(1)
    np.testing.assert_allclose(grads["dq_position"], expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(grads["danswer"], danswer, rtol=1e-4, atol=1e-4)
