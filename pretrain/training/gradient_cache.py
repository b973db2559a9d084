"""Gradients of a loss that compares the rows of a batch, which are read in parts.

Gao et al. 2021 (GradCache, arXiv 2101.06983): the rows' vectors are computed first, without what a
gradient needs.  The loss of all of them gives their gradients, with which each part is then
computed again and differentiated.
"""

import jax
import jax.numpy as jnp

from pretrain.runtime.errors import UserError
from pretrain.training.train_state import (
    State,
    constrain_grads,
    merge_rows,
    split_rows,
    split_streams,
    sum_grads,
    total_loss,
)


def choose_sum(objective, parts: int):
    """Returns the function that sums the gradients of an objective's batch in so many parts.

    Raises:
        UserError: the loss compares all rows of a batch, and cannot have them in parts.
    """
    if parts == 1 or not getattr(objective, "compares_rows", False):
        return sum_grads
    # Each part's rows compared among themselves would be another loss, without a word.
    if not all(hasattr(objective, name) for name in ("encode_rows", "compare_rows")):
        raise UserError(
            f"train.parts={parts}: this loss compares all rows of a batch, and has no encode_rows "
            "and compare_rows to read them in parts: set train.parts=1"
        )
    return sum_cached_grads


def sum_cached_grads(objective, rng, state: State, batch, parts: int, tables=()):
    """Sums the gradients of a loss over the rows of a whole batch, which are encoded in parts.

    Args:
        objective: has `encode_rows` and `compare_rows`, see `pretrain.objectives.RowComparer`.
        tables: as of `sum_grads`; the gradients here are of all parameters whole.

    Returns:
        (gradients of the total loss, the carry as it was, metrics, statistics: none)
    """
    del tables
    part_rng, loss_rng = jax.random.split(rng)
    # A part has the same key in both passes: its dropout and its augmentations are the same.
    microbatches = split_rows(batch, parts), jax.random.split(part_rng, parts)

    def encode(params, rows, rng):
        rngs, given = split_streams(rng), {"train": True, "method": "encode_rows"}
        return objective.apply({"params": params}, rows, rngs=rngs, **given)

    def compare(params, vectors):
        rngs, given = split_streams(loss_rng), {"train": True, "method": "compare_rows"}
        sums = objective.apply({"params": params}, vectors, batch, rngs=rngs, **given)
        return total_loss(sums), sums

    def add(grads, part):
        rows, rng, vector_grads = part
        _, pull_back = jax.vjp(lambda params: encode(params, rows, rng), state.params)
        (new,) = pull_back(vector_grads)
        return jax.tree.map(jnp.add, grads, constrain_grads(new)), None

    vectors = merge_rows(jax.lax.map(lambda part: encode(state.params, *part), microbatches))
    # These are gradients of parameters of `compare_rows` alone, as a classifier's: the encoder's
    # come part by part.
    differentiate = jax.grad(compare, argnums=(0, 1), has_aux=True)
    (grads, vector_grads), sums = differentiate(state.params, vectors)
    parts_of_all = (*microbatches, split_rows(vector_grads, parts))
    grads, _ = jax.lax.scan(add, constrain_grads(grads), parts_of_all)
    return grads, state.carry, sums, {}
