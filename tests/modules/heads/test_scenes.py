"""A row's score is that of the layers of all scenes and of its own scene's network."""

import jax
import numpy as np
import pytest

from modules.heads.scenes import SceneScorer
from tests.support.arrays import draw
from tests.support.compiler import quick_jit

X_BOD, SCENE_B = draw(4, 3, 5), np.array([2, 0, 2, 3])


@pytest.fixture(scope="module")
def scorer():
    """(head, parameters that all matter)."""
    head = SceneScorer(S=4, U=6, dropout=0.0)
    shapes = jax.eval_shape(lambda: head.init(jax.random.key(0), X_BOD, SCENE_B, train=False))
    return head, jax.tree.map(lambda x: draw(*x.shape, seed=x.size), shapes["params"])


def test_scores_are_those_of_the_layers_written_out(scorer):
    head, params = scorer
    p = {name: x.astype(float) for name, x in params.items()}
    expected_BO = []
    for x_OD, s in zip(X_BOD.astype(float), SCENE_B, strict=True):
        shared_OU = np.maximum(x_OD @ p["w_DU"] + p["bias_U"], 0)
        own_OF = np.maximum(shared_OU @ p["w_SUF"][s] + p["bias_SF"][s], 0)
        expected_BO.append(own_OF @ p["w_SF"][s])
    scores_BO = head.apply({"params": params}, X_BOD, SCENE_B, train=False)
    np.testing.assert_allclose(scores_BO, expected_BO, rtol=1e-5, atol=1e-5)


def test_scenes_that_no_row_is_of_have_no_gradient(scorer):
    head, params = scorer
    loss = lambda p: (head.apply({"params": p}, X_BOD, SCENE_B, train=False) ** 2).sum()  # noqa: E731
    for name, x in quick_jit(jax.grad(loss))(params).items():
        if "S" in name:
            assert not np.asarray(x[1]).any()
            assert all(np.asarray(x[s]).any() for s in SCENE_B)
