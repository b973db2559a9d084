"""A mix of layers is learned, on a backbone that may be frozen."""

import jax
import numpy as np
import pytest

from tests.support import text_tasks
from tests.support.compiler import quick_jit

FROZEN = dict(name="scalar_mix", frozen=True)


def test_a_frozen_backbone_has_no_gradient_and_all_else_has():
    case = text_tasks.build(text_tasks.bert(), head=dict(summary="tanh"), encoder=FROZEN)

    def loss(params):
        return case.task.apply({"params": params}, case.batch, train=False)["loss"].total

    grads = quick_jit(jax.grad(loss))(case.params)
    assert not any(np.asarray(x).any() for x in jax.tree.leaves(grads.pop("backbone")))
    assert all(np.asarray(x).any() for x in jax.tree.leaves(grads))


def test_the_penalty_is_of_the_squares_of_the_weights():
    free, held = (
        text_tasks.build(text_tasks.bert(), encoder=FROZEN | dict(l2=l2)) for l2 in (0.0, 0.1)
    )
    loss, more = (case.run(free.params, free.batch)[0]["loss"] for case in (free, held))
    w_N = free.params["encoder"]["mixed"]["w_N"]
    expected = 0.1 * np.square(w_N).sum() * float(loss.weight)
    assert float(more.total - loss.total) == pytest.approx(expected, rel=1e-4)
