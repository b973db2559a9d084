"""A memory begins empty, goes on in training, and is left alone by what only reads it."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pretrain.objectives.carried_memory import open_memory, save_memory


class Adder(nn.Module):
    """An objective whose memory is the sum of all batches so far."""

    backbone: Any

    @nn.compact
    def __call__(self, x_B):
        memory = open_memory(self, len(x_B))
        before_B = memory.value
        save_memory(self, memory, before_B + x_B)
        return before_B


def test_a_memory_is_what_the_batches_before_have_left():
    x_B, objective = jnp.array([1.0, 2.0, 3.0]), Adder(SimpleNamespace(initial_memory=jnp.zeros))
    state = objective.init(jax.random.key(0), x_B)
    for step in range(3):
        np.testing.assert_array_equal(state["state"]["lstm"], step * x_B)
        np.testing.assert_array_equal(objective.apply(state, x_B), step * x_B)
        _, state = objective.apply(state, x_B, mutable=["state"])
