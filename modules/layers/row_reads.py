"""Rows of a large table that a step reads, whose gradient need not be as large as the table.

A module makes a parameter with `by_rows=True` and reads it with `read_rows`.  Who differentiates
by the rows alone puts the table into the collection `TABLES`, under the path that it has among the
parameters, and into `CHANGES` zeros that are added to what is read: their gradient is the rows'.
`IDS` then holds what was read.  Otherwise `read_rows` is an index.
"""

from typing import Any

from flax import linen as nn

TABLES = "tables"  # the table
CHANGES = "row_changes"  # for each reading in turn, an array shaped as what it returns
IDS = "row_ids"  # for each reading in turn, its ids


def read_rows(module: nn.Module, name: str, table_V, ids) -> Any:
    """Reads rows of a module's parameter: `read_rows(self, "softmax_VD", self.softmax_VD, ids)`.

    Not for within a `jax.vmap` or `jax.lax.scan` of the module's own: ids leave by a collection.
    """
    if not module.has_variable(TABLES, name):
        return table_V[ids]
    number = len(module.get_variable(IDS, name, ()))
    module.sow(IDS, name, ids)
    rows: Any = module.get_variable(TABLES, name)[ids]
    changes: Any = module.get_variable(CHANGES, name)
    return rows if changes is None else rows + changes[number]
