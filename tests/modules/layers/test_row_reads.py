"""Rows read of a table are the table's, and their gradient is the table's at those rows."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from modules.layers import params, row_reads
from tests.support.arrays import draw

V, D = 7, 3
TABLE, FACTOR = draw(V, D), draw(4, D, seed=1)
FIRST, SECOND = np.array([5, 1, 5]), np.array([[1], [0]])


class Reader(nn.Module):
    """Reads a table twice."""

    @nn.compact
    def __call__(self):
        ones = nn.initializers.ones
        table_VD = params.param(self, "table_VD", ones, (V, D), decay=True, by_rows=True)
        first = row_reads.read_rows(self, "table_VD", table_VD, FIRST)
        second = row_reads.read_rows(self, "table_VD", table_VD, SECOND)
        return jnp.tanh(first * FACTOR[:3]).sum() + (second**2 * FACTOR[3]).sum()


def of_table(table_VD):
    return Reader().apply({"params": {"table_VD": table_VD}})


def test_gradients_of_the_rows_add_up_to_the_table_s():
    def of_rows(changes):
        variables = {
            "params": {"table_VD": np.full((V, D), np.nan, "f")},  # found elsewhere
            row_reads.TABLES: {"table_VD": TABLE},
            row_reads.CHANGES: {"table_VD": changes},
        }
        return Reader().apply(variables, mutable=[row_reads.IDS])

    zeros = jnp.zeros((3, D)), jnp.zeros((2, 1, D))
    (value, variables), changes = jax.value_and_grad(of_rows, has_aux=True)(zeros)
    ids = variables[row_reads.IDS]["table_VD"]
    jax.tree.map(np.testing.assert_array_equal, ids, (FIRST, SECOND))
    np.testing.assert_allclose(value, of_table(TABLE), rtol=1e-6)
    found = np.zeros((V, D))
    for rows, change in zip(ids, changes, strict=True):
        np.add.at(found, rows, change)
    np.testing.assert_allclose(found, jax.grad(of_table)(TABLE), rtol=1e-6)


def test_a_parameter_says_that_its_rows_are_read():
    with params.recording() as record:
        shapes = jax.eval_shape(Reader().init, jax.random.key(0))
    assert record.infos(shapes["params"])["table_VD"].by_rows
    assert not params.Record().infos(shapes["params"])["table_VD"].by_rows
