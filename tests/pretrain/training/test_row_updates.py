"""A step that updates the rows it read alone is the step that updates the whole table."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from modules.layers import params
from modules.layers.row_reads import read_rows
from modules.metrics import Sum
from pretrain.data.batches import describe_arrays
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.training import optimizer
from pretrain.training.compiled_steps import Steps
from pretrain.training.row_updates import EntrywiseTransformation
from tests.support.jaxpr import arrays_in

B, P, V, D = 8, 3, 96, 4
OPTIM = dict(name="adagrad", lr=0.5, steps=6, warmup=0, decay="constant", clip=15.0, grad_scale=5.0)


class Reader(nn.Module):
    """Guesses a number from rows of a table, some of which it reads twice, and from a weight."""

    reads_whole: bool = False
    V: int = V

    @nn.compact
    def __call__(self, batch, *, train: bool):
        normal, V = nn.initializers.normal(1.0), self.V
        table_VD = params.param(self, "table_VD", normal, (V, D), decay=True, by_rows=True)
        bias_V = params.param(self, "bias_V", params.zeros, (V,), decay=False, by_rows=True)
        w_D = params.param(self, "w_D", normal, (D,), decay=True)
        near_BPD = read_rows(self, "table_VD", table_VD, batch["near_BP"])
        far_BD = read_rows(self, "table_VD", table_VD, batch["far_B"])
        guess_B = jnp.tanh(near_BPD.sum(1) * far_BD) @ w_D
        guess_B += read_rows(self, "bias_V", bias_V, batch["far_B"])
        if self.reads_whole:
            guess_B += table_VD.sum()
        total = (batch["weight_B"] * (guess_B - batch["y_B"]) ** 2).sum()
        return {"loss": Sum(total, batch["weight_B"].sum(), train=True)}


@dataclasses.dataclass(eq=False)
class Batches:
    """Shapes alone."""

    B: int = B
    L: int = 1

    def shapes(self):
        return (
            describe_arrays("near_BP", (B, P), np.int32)
            | describe_arrays("far_B", (B,), np.int32)
            | describe_arrays("y_B weight_B", (B,), np.float32)
        )


def draw(seed: int, far: int = V) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "near_BP": rng.integers(0, 9, (B, P)).astype(np.int32),
        "far_B": rng.integers(0, far, B).astype(np.int32),
        "y_B": rng.normal(0, 3, B).astype("f"),
        "weight_B": np.array([1, 0, 3, 0.5, 1, 1, 2, 1], "f"),
    }


@functools.cache
def build(is_sparse: bool, parts=1, devices=1, objective=None, average=0.0, **mesh) -> Steps:
    tx, _ = optimizer.make(**OPTIM)
    assert isinstance(tx, EntrywiseTransformation)
    tx = tx if is_sparse else optax.GradientTransformationExtraArgs(*tx)
    layout = Layout(make_mesh(**mesh, devices=jax.devices()[:devices]))
    return Steps(
        objective or Reader(), tx, layout, [Batches()], seed=0, parts=parts, average=average
    )


def run(steps: Steps, batches):
    state, norms = steps.init(), []
    for batch in batches:
        state, found = steps.train(state, steps.layout.shard_batch(batch, B))
        norms.append(found.grad_norm)
    return jax.device_get(state), jax.device_get(norms)


def close(a, b, tolerance=1e-6):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def count_tables(steps: Steps) -> int:
    """Counts the arrays of the table's size that a step computes."""
    program = jax.make_jaxpr(steps.train)(steps.like, draw(0))
    shape = steps.like.params["table_VD"].shape
    (call,) = program.jaxpr.eqns  # its results are counted within
    return sum(x.aval.shape == shape for x in arrays_in(call.params["jaxpr"].jaxpr))


@pytest.mark.parametrize("place", [{}, dict(devices=4, fsdp=2), dict(devices=2, tensor=2)])
@pytest.mark.parametrize("parts", [1, 2])
def test_several_steps_by_rows_are_those_of_the_whole_table(parts, place):
    batches = [draw(seed, far=20 + 15 * seed) for seed in range(5)]
    rows, row_norms = run(build(True, parts, **place), batches)
    whole, norms = run(build(False, parts), batches)
    # Some are clipped, some are not.
    assert min(norms) < OPTIM["clip"] / OPTIM["grad_scale"] < max(norms)
    # Several devices add up in another order.
    near = functools.partial(close, tolerance=1e-5 if place else 1e-6)
    near(row_norms, norms)
    jax.tree.map(near, rows, whole)
    assert jax.tree.structure(rows) == jax.tree.structure(whole)


def test_rows_that_no_step_read_stay_bit_by_bit():
    steps, batches = build(True), [draw(seed) for seed in range(2)]
    before, (after, _) = jax.device_get(steps.init()), run(steps, batches)
    read = np.unique(
        np.concatenate([x.ravel() for b in batches for x in (b["near_BP"], b["far_B"])])
    )
    same_V = (after.params["table_VD"] == before.params["table_VD"]).all(1)
    # A row of weight 0 has no gradient either.
    assert len(read) - 4 < (~same_V).sum() <= np.isin(np.flatnonzero(~same_V), read).sum()


def test_a_step_that_is_not_finite_leaves_every_row():
    steps, broken = build(True), draw(1)
    broken["y_B"][2] = np.inf
    state, _ = run(steps, [draw(0)])
    again, _ = run(steps, [draw(0), broken])
    assert again.consecutive_skips == again.skipped == 1
    jax.tree.map(
        np.testing.assert_array_equal, (again.params, again.opt), (state.params, state.opt)
    )


def test_nothing_as_large_as_the_table_is_computed_but_it_and_its_sums_anew():
    assert count_tables(build(True)) == 2
    assert count_tables(build(False)) > 8


@pytest.mark.parametrize(
    "options",
    [
        dict(objective=Reader(reads_whole=True)),
        dict(objective=Reader(V=50)),  # 32 readings would be more than half of its rows
        dict(average=0.5),  # it takes in every row
        dict(devices=2, tensor=2),  # a device has half of the rows
    ],
)
def test_the_whole_table_is_updated_where_rows_would_not_do(options):
    steps = build(True, **options)
    assert count_tables(steps) == count_tables(build(False, **options)) > 8
    batches = [draw(0, far=50), draw(1, far=50)]
    rows, _ = run(steps, batches)
    if options.get("objective", Reader()) == Reader():
        jax.tree.map(close, rows.params, run(build(True), batches)[0].params)
