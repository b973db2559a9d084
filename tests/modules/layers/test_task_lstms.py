"""What the three models compute for a word is what their matrices are for."""

import jax
import numpy as np
import pytest

from modules.layers import task_lstms

D, U = 3, 4


@pytest.mark.parametrize(
    ("kind", "tasks"),
    [
        (task_lstms.Uniform, ("a", "b")),
        (task_lstms.Coupled, ("a", "b", "c")),
        (task_lstms.Shared, ("a",)),
        (task_lstms.Shared, ()),
    ],
)
def test_a_word_meets_every_weight_of_its_matrices_once(kind, tasks):
    reader = kind(tasks, U, 0.1, "float32", 1)
    rows = np.zeros((1, 2, D), np.float32), np.ones((1, 2), bool), None, next(iter(tasks), "")
    shapes = jax.eval_shape(lambda: reader.init(jax.random.key(0), *rows))["params"]
    matrices = [x for x in jax.tree.leaves(shapes) if x.ndim == 3]
    assert sum(x.size for x in matrices) == U * reader.products(D)
