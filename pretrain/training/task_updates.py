"""Keeps an optimiser from parameters whose task a step is not of."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class TaskUpdates(NamedTuple):
    """State of `by_task`.

    Attributes:
        inner: that of the optimiser.
        counts: updates of each task's own parameters; "": all updates.
    """

    inner: Any
    counts: dict[str, jax.Array]


def by_task(tx: optax.GradientTransformationExtraArgs, tasks: Sequence[str]):
    """Leaves parameters of a task and their moments as they are in steps without the task.

    Adam corrects its moments by the task's own steps, as PyTorch does by those of a parameter that
    has a gradient.  The learning rate follows all steps.

    Args:
        tasks: all that there are; none: `tx` is returned.
    """
    if not tasks:
        return tx

    def init(params):
        counts = {task: jnp.zeros((), jnp.int32) for task in ("", *tasks)}
        return TaskUpdates(tx.init(params), counts)

    def update(grads, state, params=None, *, infos, present, **known):
        counts = {task: n + (task in ("", *present)) for task, n in state.counts.items()}
        # A parameter may be of a task that this run has not, as a shared run's that it goes on
        # from: it is in no step.
        known["counts"] = jax.tree.map(lambda info: counts.get(info.task, counts[""]), infos)
        updates, inner = tx.update(grads, state.inner, params, infos=infos, **known)
        touched = jax.tree.map(lambda info: info.task in ("", *present), infos)
        updates = jax.tree.map(lambda u, is_in: u if is_in else jnp.zeros_like(u), updates, touched)
        is_new = optax.tree_utils.tree_map_params(
            tx, lambda _, is_in: is_in, state.inner, touched, transform_non_params=lambda _: True
        )
        chosen = jax.tree.map(lambda x, old, new: new if x else old, is_new, state.inner, inner)
        return updates, TaskUpdates(chosen, counts)

    return optax.GradientTransformationExtraArgs(init, update)
