"""The train state and the two pure steps every job runs, whatever the objective."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax

from modules.activation_sharding import constrain_sharding
from modules.metrics import Metrics, Sum
from pretrain.distributed.sharding import letters

SCALARS = {  # numbers of a state that hooks may change between steps, and what they do
    "lr_scale": "multiplies every update, beside the schedule",
    "average_rate": "rate of the moving average of the parameters; 0: it is the parameters",
}


@flax.struct.dataclass
class State:
    """All that a run is, between two steps; every leaf is saved, sharded and restored."""

    step: jax.Array
    params: Any
    carry: Any  # collections an objective keeps between batches, e.g. XLNet's memory
    opt: Any
    average: Any  # of the parameters, where the recipe wants one; else None
    skipped: jax.Array  # steps whose loss or gradient was not finite
    consecutive_skips: jax.Array  # how many of them are the latest
    scalars: Any = None  # float32 by name, of `SCALARS`, where hooks change them; else None

    @property
    def evaluated_params(self):
        """The parameters that are evaluated: their average where there is one."""
        return self.params if self.average is None else self.average


@flax.struct.dataclass
class StepMetrics:
    """What a training step reports of itself; small, and not part of the state.

    Attributes:
        sums: the metrics of the objective on the batch.
        grad_norm: float32, of the gradient before it is clipped.
        consecutive_skips: int32, as in `State` after the step; above 0, `sums` say nothing.
    """

    sums: Metrics
    grad_norm: jax.Array
    consecutive_skips: jax.Array


def init(
    objective,
    tx,
    rng,
    batch,
    *,
    average: float = 0.0,
    scalars: Mapping[str, float] | None = None,
) -> State:
    """Builds a fresh state; every array in it is a pure function of the seed.

    Args:
        average: rate of the moving average of the parameters; 0: there is none.
        scalars: values of `SCALARS` that hooks may change; without them the state has none.
    """
    rngs = dict(zip(("params", "dropout", "corrupt"), jax.random.split(rng, 3), strict=True))
    carry = dict(objective.init(rngs, batch, train=True))
    params = carry.pop("params")
    zero = jnp.zeros((), jnp.int32)
    has_average = average or "average_rate" in (scalars or {})
    copy = jax.tree.map(jnp.copy, params) if has_average else None
    values = {name: jnp.float32(x) for name, x in scalars.items()} if scalars else None
    return State(zero, params, carry, tx.init(params), copy, zero, zero, values)


def replace_scalars(state: State, values: Mapping[str, float]) -> State:
    """Returns the state with these values of its scalars.

    Raises:
        ValueError: the state has no such scalar.
    """
    scalars = state.scalars or {}
    if unknown := values.keys() - scalars.keys():
        raise ValueError(f"{min(unknown)!r} is not among the state's scalars: {sorted(scalars)}")
    new = {k: jax.device_put(np.float32(x), scalars[k].sharding) for k, x in values.items()}
    return dataclasses.replace(state, scalars={**scalars, **new}) if new else state


def fresh_carry(objective, rng, batch):
    """What an objective keeps between batches, before it has read any."""
    rngs = {"params": rng, "dropout": rng, "corrupt": rng}
    variables = objective.init(rngs, batch, train=False)
    return {name: values for name, values in variables.items() if name != "params"}


def train_step(objective, tx, rng, state: State, batch, *, parts: int = 1, average: float = 0.0):
    """Updates the state from one batch, taken in `parts`; returns it and `StepMetrics`.

    The gradient is of the mean over the whole batch, whatever the parts' weights; but see
    `total_loss` where there is more than one loss.  Randomness
    comes from (seed, step), so a restart repeats it.  A step whose loss or gradient is not
    finite changes nothing but the counters.
    """
    rng = jax.random.fold_in(rng, state.step)
    scalars = state.scalars or {}
    grads, carry, sums = _gradients(objective, rng, state, batch, parts)
    share = 1 / jnp.maximum(sums["loss"].weight, 1e-9)
    norm = optax.tree.norm(grads) * share
    finite = jnp.isfinite(norm) & jnp.isfinite(total_loss(sums))

    def update():
        mean = jax.tree.map(lambda g: g * share, grads)
        updates, opt = tx.update(mean, state.opt, state.params, norm=norm)
        if "lr_scale" in scalars:
            updates = jax.tree.map(lambda u: u * scalars["lr_scale"], updates)
        params = optax.apply_updates(state.params, updates)
        average_rate = scalars.get("average_rate", average)
        return params, carry, opt, _averaged(state.average, params, average_rate)

    def skip():
        return state.params, state.carry, state.opt, state.average

    # A branch, not a select: the moments are updated in place, with no second pass over them.
    params, carry, opt, kept = jax.lax.cond(finite, update, skip)
    skips = jnp.where(finite, 0, state.consecutive_skips + 1)
    number, skipped = state.step + 1, state.skipped + ~finite
    state = State(number, params, carry, opt, kept, skipped, skips, state.scalars)
    return state, StepMetrics(sums, norm, skips)


def total_loss(metrics: Metrics):
    """Adds up what is minimised, as a total of the weight of "loss".

    That is "loss" and the mean of each other metric with `train`.  Of a batch taken in parts,
    each part weighs the others against its own "loss".

    Raises:
        ValueError: there is no metric "loss" with `train`.
    """
    if "loss" not in metrics or not metrics["loss"].train:
        raise ValueError("an objective returns a metric 'loss' with train=True")
    loss, others = metrics["loss"], {**metrics, "loss": Sum(0, 0)}
    total = loss.total
    for other in others.values():
        if other.train:
            total += other.total * (loss.weight / jnp.maximum(other.weight, 1e-9))
    return total


def eval_step(objective, rng, params, carry, batch):
    """The same sums on held-out data, and the carry for its next batch."""
    return objective.apply(
        {"params": params, **carry}, batch, train=False, rngs={"corrupt": rng}, mutable=list(carry)
    )


def _gradients(objective, rng, state: State, batch, parts: int):
    """Gradients of the summed loss, the new carry, and the sums of all parts."""

    @functools.partial(jax.grad, has_aux=True)
    def slopes(params, carry, batch, rng):
        dropout_rng, corrupt_rng = jax.random.split(rng)
        sums, carry = objective.apply(
            {"params": params, **carry},
            batch,
            train=True,
            mutable=list(carry),
            rngs={"dropout": dropout_rng, "corrupt": corrupt_rng},
        )
        return total_loss(sums), (sums, carry)

    def held(carry, batch, rng):
        grads, (sums, carry) = slopes(state.params, carry, batch, rng)
        return _held(grads), sums, carry

    def add(done, own):
        *new, carry = held(*own)
        return jax.tree.map(jnp.add, done, tuple(new)), carry

    if parts == 1:
        grads, sums, carry = held(state.carry, batch, rng)
        return grads, carry, sums
    own = (_deal(state.carry, parts), _deal(batch, parts), jax.random.split(rng, parts))
    one = jax.tree.map(lambda x: x[0], own)
    grads, sums, _ = jax.eval_shape(held, *one)
    grads, sums = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (grads, sums))
    (grads, sums), carry = jax.lax.scan(add, (_held(grads), sums), own)
    return grads, _gather(carry), sums


def _held(grads):
    """Gradients where their parameters live: no device sums up more than its share."""
    return jax.tree_util.tree_map_with_path(
        lambda path, g: constrain_sharding(g, letters(path)), grads
    )


def _rows(path) -> int:
    """Where the batch stands among an array's dimensions, from the last: -3 in `h_NBMD`."""
    return letters(path).index("B") - len(letters(path))


def _deal(tree, parts: int):
    """Row r of every array to part r % parts, so that each device deals its own rows."""

    def deal(path, x):
        axis = x.ndim + _rows(path)
        x = x.reshape(*x.shape[:axis], -1, parts, *x.shape[axis + 1 :])
        return jnp.moveaxis(x, axis + 1, 0)

    return jax.tree_util.tree_map_with_path(deal, tree)


def _gather(tree):
    """The inverse of `_deal`."""

    def gather(path, x):
        axis = x.ndim - 1 + _rows(path)
        x = jnp.moveaxis(x, 0, axis + 1)
        return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])

    return jax.tree_util.tree_map_with_path(gather, tree)


def _averaged(kept, params, rate: float | jax.Array):
    """Returns the moving average after one more step."""
    return kept and jax.tree.map(lambda k, p: rate * k + (1 - rate) * p, kept, params)
