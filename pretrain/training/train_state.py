"""The train state and the two pure steps every job runs, whatever the objective."""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax

from modules.activation_sharding import constrain_sharding
from modules.kernels.branch import choose_result
from modules.layers import row_reads
from modules.layers.params import STATISTICS
from modules.metrics import Metrics, Sum
from pretrain.data.batches import split_tasks
from pretrain.distributed.sharding import read_letters
from pretrain.training import row_updates

# Numbers of a state that hooks may change between steps, and their effect.
SCALARS = {
    "lr_scale": "multiplies every update, beside the schedule",
    "average_rate": "rate of the moving average of the parameters; 0: it is the parameters",
    "average_from": "step behind which the average is the mean of all iterates; -1: none yet",
}
AVERAGES = {"average_rate", "average_from"}


@flax.struct.dataclass
class State:
    """Holds all that a run is between two steps; every leaf is saved, sharded and restored.

    Attributes:
        step: int32, number of batches seen.
        params: what is learned, and the statistics among it, see `params.statistic`.
        carry: collections that an objective keeps between batches, as XLNet's memory.
        opt: state of the optimiser.
        average: moving average of the parameters, where the recipe wants one; else None.
        skipped: int32, number of steps whose loss or gradient was not finite.
        consecutive_skips: int32, how many of the latest steps were skipped.
        scalars: float32 by name, of `SCALARS`, where hooks change them; else None.
    """

    step: jax.Array
    params: Any
    carry: Any
    opt: Any
    average: Any
    skipped: jax.Array
    consecutive_skips: jax.Array
    scalars: Any = None

    @property
    def evaluated_params(self):
        """Returns the parameters to evaluate: their average where there is one."""
        return self.params if self.average is None else self.average


@flax.struct.dataclass
class StepMetrics:
    """Carries the metrics of one training step to the host.

    Attributes:
        sums: the metrics of the objective on the batch.
        grad_norm: float32, of the gradient before it is clipped.
        consecutive_skips: int32, as in `State` after the step; above 0, `sums` say nothing.
        norms: of the parts of the model, where they are measured; else {}.
    """

    sums: Metrics
    grad_norm: jax.Array
    consecutive_skips: jax.Array
    norms: Metrics = dataclasses.field(default_factory=dict)


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
    has_average = average or AVERAGES & set(scalars or {})
    # A copy: the state is donated, and one buffer cannot be donated twice.
    copy = jax.tree.map(jnp.copy, params) if has_average else None
    values = {name: jnp.float32(x) for name, x in scalars.items()} if scalars else None
    return State(zero, params, carry, tx.init(params), copy, zero, zero, values)


def replace_params(state: State, params: Any) -> State:
    # The moving average begins at them, too.
    average = None if state.average is None else jax.tree.map(jnp.copy, params)
    return dataclasses.replace(state, params=params, average=average)


def replace_scalars(state: State, values: Mapping[str, float]) -> State:
    """Returns the state with these values of its scalars.

    Raises:
        ValueError: the state has no such scalar.
    """
    scalars = state.scalars or {}
    if unknown := values.keys() - scalars.keys():
        raise ValueError(f"{min(unknown)!r} is not among the state's scalars: {sorted(scalars)}")
    # In its old place: another sharding would compile the step again.
    new = {k: jax.device_put(np.float32(x), scalars[k].sharding) for k, x in values.items()}
    return dataclasses.replace(state, scalars={**scalars, **new}) if new else state


def init_carry(objective, rng, batch):
    """Returns the collections that an objective keeps between batches, as yet without content."""
    rngs = {"params": rng, "dropout": rng, "corrupt": rng}
    variables = objective.init(rngs, batch, train=False)
    return {name: values for name, values in variables.items() if name != "params"}


def train_step(
    objective,
    tx,
    rng,
    state: State,
    batch,
    *,
    parts: int = 1,
    average: float = 0.0,
    measure: Callable[[Any, Any, Any, jax.Array], Metrics] = lambda *_: {},
    sum_parts: Callable[..., tuple[Any, Any, Metrics, Any]] | None = None,
):
    """Updates the state from one batch; one whose loss is not finite changes only the counters.

    Args:
        rng: key of the run.
        parts: microbatches whose gradients are added up.
        average: rate of the moving average of the parameters; 0: there is none.
        measure: (params, mean gradients, updates, norm) -> metrics, see `GradientNorms`.
        sum_parts: sums gradients as `sum_grads` does; None: it.

    Returns:
        (the new state, its `StepMetrics`).
    """
    rng = jax.random.fold_in(rng, state.step)  # a restart repeats the randomness of its steps
    scalars = state.scalars or {}
    average_rate = _choose_average_rate(scalars, state.step, average)
    grads, carry, sums, statistics = (sum_parts or sum_grads)(objective, rng, state, batch, parts)
    # From here on a table of which few rows have a gradient is those rows.
    grads, rows = row_updates.split_rows(grads)
    grads = constrain_grads(grads)  # the rows, too
    old_params, old_opt = row_updates.take_rows(tx, rows, state.params, state.opt)
    # Divided once, after the sum over microbatches: these may have unequal weights, and the
    # gradient is of the mean over the whole batch.
    share = 1 / jnp.maximum(sums["loss"].weight, 1e-9)
    norm = optax.tree.norm(grads) * share
    is_finite = jnp.isfinite(norm) & jnp.isfinite(total_loss(sums))

    def update():
        # Before the optimiser, as limits and moments are of the mean.
        mean_grads = jax.tree.map(lambda g: g * share, grads)
        known = dict(norm=norm, weight=sums["loss"].weight, present=tuple(split_tasks(batch)))
        updates, opt = tx.update(mean_grads, old_opt, old_params, **known)
        # After the optimiser: Adam would divide a factor of the gradient out again.
        if "lr_scale" in scalars:
            updates = jax.tree.map(lambda u: u * scalars["lr_scale"], updates)
        norms = measure(state.params, mean_grads, updates, norm)
        params = _replace_leaves(optax.apply_updates(old_params, updates), statistics)
        new_average = _update_average(state.average, params, average_rate)
        return params, carry, opt, new_average, norms

    def skip():
        # Both results have the same shapes.
        shapes = jax.eval_shape(measure, state.params, grads, state.params, norm)
        norms = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        return old_params, state.carry, old_opt, state.average, norms

    params, carry, opt, new_average, norms = choose_result(is_finite, update, skip)
    params, opt = row_updates.put_rows(tx, rows, (state.params, state.opt), (params, opt))
    skips = jnp.where(is_finite, 0, state.consecutive_skips + 1)
    # A skipped step counts as a step: its batch is not read again.
    number, skipped = state.step + 1, state.skipped + ~is_finite
    state = State(number, params, carry, opt, new_average, skipped, skips, state.scalars)
    return state, StepMetrics(sums, norm, skips, norms)


def total_loss(metrics: Metrics):
    """Adds up what is minimised, as a total of the weight of "loss".

    Raises:
        ValueError: there is no metric "loss" with `train`.
    """
    if "loss" not in metrics or not metrics["loss"].train:
        raise ValueError("an objective returns a metric 'loss' with train=True")
    loss, others = metrics["loss"], {**metrics, "loss": Sum(0, 0)}
    total = loss.total
    for other in others.values():
        if other.train:
            # Its mean times the weight of "loss", by which the step divides once.  Each part of a
            # batch weighs the others against its own "loss".
            total += other.total * (loss.weight / jnp.maximum(other.weight, 1e-9))
    return total


def eval_step(objective, rng, params, carry, batch):
    """Returns the metrics of a held-out batch, and the carry for the next."""
    return objective.apply(
        {"params": params, **carry}, batch, train=False, rngs={"corrupt": rng}, mutable=list(carry)
    )


def sum_grads(
    objective, rng, state: State, batch, parts: int, tables: Collection[row_updates.Path] = ()
):
    """Returns gradients of the summed loss, the new carry, metrics and statistics of a batch.

    Args:
        tables: parameters whose gradients may be `row_updates.RowGrads`.
    """

    def loss(params, tables, changes, carry, batch, rng):
        reads = {row_reads.TABLES: tables, row_reads.CHANGES: changes} if tables else {}
        sums, changed = objective.apply(
            {"params": params, **reads, **carry},
            batch,
            train=True,
            mutable=[*carry, STATISTICS, row_reads.IDS],
            rngs=split_streams(rng),
        )
        statistics, ids = (changed.pop(name, {}) for name in (STATISTICS, row_reads.IDS))
        # A total, not a mean: microbatches add up, whatever they weigh.
        return total_loss(sums), (ids, sums, statistics, changed)

    differentiate = row_updates.grad_by_rows(loss, tables, parts)

    def compute(carry, batch, rng):
        grads, reads, (sums, *rest) = differentiate(state.params, carry, batch, rng)
        return (constrain_grads(grads), sums, rest[0]), (reads, rest[1])

    def add(totals, microbatch):
        new, outputs = compute(*microbatch)
        return jax.tree.map(jnp.add, totals, new), outputs

    if parts == 1:  # a scan would hold the gradients twice, sum and summand
        (grads, sums, statistics), (reads, carry) = compute(state.carry, batch, rng)
        return row_updates.merge_reads(grads, reads, state.params), carry, sums, statistics
    microbatches = (
        split_rows(state.carry, parts),
        split_rows(batch, parts),
        jax.random.split(rng, parts),
    )
    first = jax.tree.map(lambda x: x[0], microbatches)
    shapes, _ = jax.eval_shape(compute, *first)
    grads, *rest = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    # The zeros, too, so that the scan carries shards and not whole gradients.
    zeros = (constrain_grads(grads), *rest)
    (grads, sums, statistics), (reads, carry) = jax.lax.scan(add, zeros, microbatches)
    reads = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), reads)
    grads = row_updates.merge_reads(grads, reads, state.params)
    # Each microbatch began with the state's statistics, so the step has the mean of theirs.
    return grads, merge_rows(carry), sums, jax.tree.map(lambda x: x / parts, statistics)


def split_streams(rng) -> dict[str, jax.Array]:
    """Splits a key into the random streams that a model draws from in training."""
    # Streams of their own: another dropout rate leaves the corrupted tokens as they are.
    dropout_rng, corrupt_rng = jax.random.split(rng)
    return {"dropout": dropout_rng, "corrupt": corrupt_rng}


def _replace_leaves(tree: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    new = {
        name: _replace_leaves(tree[name], x) if isinstance(x, Mapping) else x
        for name, x in others.items()
    }
    return {**tree, **new}


def constrain_grads(grads):
    """Constrains gradients to their parameters' sharding: no device sums up more than its share."""
    return jax.tree_util.tree_map_with_path(
        lambda path, g: constrain_sharding(g, read_letters(path)), grads
    )


def _batch_axis(path) -> int:
    """Returns the axis of B in an array, counted from the last: -3 in `h_NBMD`."""
    # From the last: stacked layers and microbatches add axes in front.
    return read_letters(path).index("B") - len(read_letters(path))


def split_rows(tree, parts: int):
    """Splits each array's rows into microbatches, as a new leading axis."""

    # Row r goes to microbatch r % parts, so that each device splits its own rows.
    def split(path, x):
        axis = x.ndim + _batch_axis(path)
        x = x.reshape(*x.shape[:axis], -1, parts, *x.shape[axis + 1 :])
        return jnp.moveaxis(x, axis + 1, 0)

    return jax.tree_util.tree_map_with_path(split, tree)


def merge_rows(tree):
    """Inverts `split_rows`."""

    def merge(path, x):
        axis = x.ndim - 1 + _batch_axis(path)
        x = jnp.moveaxis(x, 0, axis + 1)
        return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])

    return jax.tree_util.tree_map_with_path(merge, tree)


def _choose_average_rate(scalars: Mapping[str, Any], step, average: float):
    """Returns the rate at which the average takes in the parameters after step number `step`."""
    if "average_from" not in scalars:
        return scalars.get("average_rate", average)
    begin = scalars["average_from"]
    # With 1 / n for the last of n iterates all have the same share; before `begin` the average
    # is the last iterate.
    iterates = jnp.where(begin < 0, 1.0, step + 1 - begin)
    return 1 - 1 / jnp.maximum(iterates, 1.0)


def _update_average(average, params, rate: float | jax.Array):
    """Returns the moving average after one more step; None where there is none."""
    return average and jax.tree.map(lambda a, p: rate * a + (1 - rate) * p, average, params)
