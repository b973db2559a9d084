"""Gradients and updates of the few rows of a table that a step reads.

A sampled softmax reads 30 thousand rows of 800 thousand.  The gradient of the others is 0, and an
optimiser as Adagrad leaves them and their sums as they are.  So the loss is differentiated by the
rows that `modules.layers.row_reads` read.  In the place of the table, of its gradient and of what
the optimiser keeps of it there are then its distinct rows, as one array like any other: its norm,
the clipping, the skipping of a step and the optimiser know nothing of it.  The rows are written
back at the end of the step.  It is the same mathematics; sums are added up in another order.

It needs

- a module that reads its table by `row_reads.read_rows` alone, which is seen in its program;
- an optimiser that is an `EntrywiseTransformation`;
- rows that are few, on devices each of which has all of them (their width may be split);
- no moving average of the parameters, which moves every row.

Elsewhere the gradient is the whole table's.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import flax
import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict, unflatten_dict

Path = tuple[str, ...]
# Rows are worth it up to this share of a table: each is read and written apart.
SHARE = 0.5


class EntrywiseTransformation(optax.GradientTransformationExtraArgs):
    """An optimiser that updates every entry by itself, and none whose gradient is 0, state too."""


@flax.struct.dataclass
class RowGrads:
    """The gradient of a table.

    Attributes:
        ids_R: distinct rows; an id beyond the table is of no row.
        values_R: their gradients, [R, ...].
    """

    ids_R: jax.Array
    values_R: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Names the rows of an array that a step updates; None: all of it."""

    ids_R: jax.Array | None

    def take(self, x):
        # An id that is of no row has gradient 0: whatever is read there stays as it is.
        return x if self.ids_R is None else x.at[self.ids_R].get(mode="clip")

    def write(self, x, rows):
        if self.ids_R is None:
            return rows
        return x.at[self.ids_R].set(rows, mode="drop", unique_indices=True)


# --- gradients -------------------------------------------------------------------------------


def list_tables(infos) -> list[Path]:
    """Lists the parameters of which rows are read, by their `ParamInfo`s."""
    return [path for path, info in flatten_dict(infos).items() if info.by_rows]


def grad_by_rows(loss: Callable, paths: Collection[Path], parts: int):
    """Differentiates as `jax.grad(loss, has_aux=True)` does, but for tables by the rows read.

    Args:
        loss: (params, tables, changes, ...) -> (loss, (ids, ...)), with collections of `row_reads`.
        paths: tables that may be read by rows alone.
        parts: how many results will be added up.

    Returns:
        (params, ...) -> (gradients of what is no such table, reads, the rest of the second
        result); reads: path -> [ids, gradients], for `merge_reads`.
    """

    def differentiate(params, *args):
        reads = find_reads(loss, params, paths, parts, *args) if paths else {}
        if not reads:
            grads, (_, *aux) = jax.grad(loss, has_aux=True)(params, {}, {}, *args)
            return grads, {}, aux
        rest, tables = _split(params, reads)
        zeros = {
            path: tuple(jnp.zeros(ids.shape + x.shape[1:], x.dtype) for ids in reads[path])
            for path, x in tables.items()
        }

        @functools.partial(jax.grad, has_aux=True)
        def compute(trained):
            rest, changes = trained
            whole = unflatten_dict({**rest, **tables})
            return loss(whole, unflatten_dict(tables), unflatten_dict(changes), *args)

        (rest, changes), (ids, *aux) = compute((rest, zeros))
        ids = flatten_dict(dict(ids))
        row_grads = {
            path: [_join(ids[path], 0), _join(values, tables[path].ndim - 1)]
            for path, values in changes.items()
        }
        return unflatten_dict(rest), row_grads, aux

    return differentiate


def find_reads(loss: Callable, params, paths: Collection[Path], parts: int, *args):
    """Finds the tables that are read by rows alone, and by few: path -> shapes of the ids."""
    _, tables = _split(params, paths)

    def read(params, tables):
        return loss(params, unflatten_dict(tables), {}, *args)[1][0]

    program, ids = jax.make_jaxpr(read, return_shape=True)(params, tables)
    # What reads a table whole finds it among the parameters; `read_rows` finds it elsewhere.
    uses = {id(x) for equation in program.jaxpr.eqns for x in equation.invars}
    leaves = jax.tree_util.tree_leaves_with_path(params)
    variables = program.jaxpr.invars[: len(leaves)]
    whole = {
        tuple(key.key for key in path)
        for (path, _), x in zip(leaves, variables, strict=True)
        if id(x) in uses
    }
    return {
        path: shapes
        for path, shapes in flatten_dict(dict(ids)).items()
        if path not in whole
        and parts * sum(math.prod(x.shape) for x in shapes) <= SHARE * len(tables[path])
    }


def merge_reads(grads, reads: Mapping[Path, Any], params):
    """Puts the `RowGrads` of all reads among the gradients of the other parameters."""
    if not reads:
        return grads
    tables = flatten_dict(params)
    merged = {path: _merge(ids, values, len(tables[path])) for path, (ids, values) in reads.items()}
    return unflatten_dict({**flatten_dict(grads), **merged})


def _merge(ids_R, values_R, V: int) -> RowGrads:
    """Adds up the gradients of each distinct id."""
    numbers_R = jnp.arange(len(ids_R), dtype=jnp.int32)
    # The first reading of a row has the sum of all.  By a table of all ids, as sorting is slower.
    first_V = jnp.full(V, len(ids_R), jnp.int32).at[ids_R].min(numbers_R)
    first_R = first_V[ids_R]
    sums_R = jnp.zeros_like(values_R).at[first_R].add(values_R)
    # Beyond the table, and each but once.
    ids_R = jnp.where(first_R == numbers_R, ids_R, V + numbers_R)
    return RowGrads(ids_R, sums_R)


def _split(params, paths: Collection[Path]) -> tuple[dict, dict]:
    flat = flatten_dict(params)
    return (
        {path: x for path, x in flat.items() if path not in paths},
        {path: flat[path] for path in paths},
    )


def _join(arrays, ndim: int):
    """Lays the rows of several arrays one after another; a row has so many dimensions."""
    return jnp.concatenate([x.reshape(-1, *x.shape[x.ndim - ndim :]) for x in arrays])


# --- updates ---------------------------------------------------------------------------------


def split_rows(grads) -> tuple[Any, Any]:
    """Returns gradients whose leaves are arrays, and the `Rows` that these are of."""
    is_row_grads = lambda g: isinstance(g, RowGrads)  # noqa: E731
    flat, structure = jax.tree.flatten(grads, is_leaf=is_row_grads)
    values = [g.values_R if is_row_grads(g) else g for g in flat]
    rows = [Rows(g.ids_R if is_row_grads(g) else None) for g in flat]
    return jax.tree.unflatten(structure, values), jax.tree.unflatten(structure, rows)


def take_rows(tx, rows, params, opt) -> tuple[Any, Any]:
    """Returns parameters and state of an optimiser, of tables their rows alone."""
    if not _has_rows(rows):
        return params, opt
    of_opt = _rows_of_state(tx, rows, opt)
    return jax.tree.map(Rows.take, rows, params), jax.tree.map(Rows.take, of_opt, opt)


def put_rows(tx, rows, old: tuple[Any, Any], new: tuple[Any, Any]) -> tuple[Any, Any]:
    """Returns the old parameters and state with the new of `take_rows` in their places."""
    if not _has_rows(rows):
        return new
    places = rows, _rows_of_state(tx, rows, old[1])
    return jax.tree.map(Rows.write, places, old, new)


def _has_rows(rows) -> bool:
    return any(x.ids_R is not None for x in jax.tree.leaves(rows))


def _rows_of_state(tx, rows, opt):
    return optax.tree_utils.tree_map_params(
        tx, lambda _, rows: rows, opt, rows, transform_non_params=lambda _: Rows(None)
    )
