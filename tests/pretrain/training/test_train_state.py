"""One step, however the batch is dealt, and none from a broken gradient."""

import functools

import jax
import numpy as np
import optax
import pytest
from flax import linen as nn

from modules.metrics import Sum
from pretrain.training import train_state as states
from tests.support.compiler import quick_jit
from tests.support.regression import B, NormedObjective, Objective, draw

TX = optax.adam(0.1)


@functools.cache
def step(parts=1, average=0.0):
    return quick_jit(
        functools.partial(states.train_step, Objective(), TX, parts=parts, average=average)
    )


def begin(average=0.0):
    fresh = states.init(Objective(), TX, jax.random.key(0), draw(0), average=average)
    return step(average=average)(jax.random.key(1), fresh, draw(1))[0]  # memory is no longer zero


def equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_a_batch_in_parts_is_the_batch_at_once(parts):
    whole, sums = step()(jax.random.key(1), begin(), draw(2))
    dealt, dealt_sums = step(parts)(jax.random.key(1), begin(), draw(2))
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)  # noqa: E731
    jax.tree.map(close, (dealt.params, dealt.opt, dealt_sums), (whole.params, whole.opt, sums))
    equal(dealt.carry, whole.carry)
    np.testing.assert_array_equal(dealt.carry["memory"]["h_NBMD"][0, :, -1], draw(2)["x_BD"])


def test_the_gradient_is_of_the_mean_by_weight():
    before, batch = begin(), draw(2)
    _, metrics = step(4)(jax.random.key(1), before, batch)
    x_BD = batch["x_BD"] + np.asarray(before.carry["memory"]["h_NBMD"]).sum((0, 2))
    error_B = (x_BD @ before.params["w_D"] - batch["y_B"]) * batch["weight_B"]
    slope_D = 2 * error_B @ x_BD / batch["weight_B"].sum()
    np.testing.assert_allclose(metrics.grad_norm, np.linalg.norm(slope_D), rtol=1e-5)
    assert metrics.sums["loss"].weight == batch["weight_B"].sum()


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e15])  # 1e15: the loss is finite
def test_a_step_that_is_not_finite_changes_nothing_but_the_counters(parts, bad):
    before, broken = begin(average=0.5), draw(2)
    broken["x_BD"][2, 1] = bad
    once, metrics = step(parts, 0.5)(jax.random.key(1), before, broken)
    twice, _ = step(parts, 0.5)(jax.random.key(1), once, broken)
    for after in (once, twice):
        for name in ("params", "carry", "opt", "average"):
            equal(getattr(after, name), getattr(before, name))
    counts = [
        (int(s.step), int(s.skipped), int(s.consecutive_skips)) for s in (before, once, twice)
    ]
    assert counts == [(1, 0, 0), (2, 1, 1), (3, 2, 2)]
    assert metrics.consecutive_skips == 1
    healed, _ = step(parts, 0.5)(jax.random.key(1), twice, draw(3))
    assert (int(healed.skipped), int(healed.consecutive_skips)) == (2, 0)
    assert np.any(healed.params["w_D"] != before.params["w_D"])


def test_the_average_follows_the_parameters():
    state = states.init(Objective(), TX, jax.random.key(0), draw(0), average=0.75)
    expected = np.asarray(state.params["w_D"])
    for seed in (1, 2, 3):
        state, _ = step(average=0.75)(jax.random.key(1), state, draw(seed))
        expected = 0.75 * expected + 0.25 * np.asarray(state.params["w_D"])
    np.testing.assert_allclose(state.average["w_D"], expected, rtol=1e-6)
    assert np.any(state.average["w_D"] != state.params["w_D"])


def test_an_update_is_multiplied_by_the_scale_of_the_rate():
    moves = []
    for scale in (1.0, 0.5):
        before = begin().replace(scalars={"lr_scale": np.float32(scale)})
        after, _ = step()(jax.random.key(1), before, draw(2))
        equal(after.scalars, before.scalars)
        moves.append(after.params["w_D"] - before.params["w_D"])
    plain, _ = step()(jax.random.key(1), begin(), draw(2))
    np.testing.assert_array_equal(moves[0], plain.params["w_D"] - begin().params["w_D"])
    np.testing.assert_allclose(moves[1], moves[0] / 2, rtol=1e-4)


class Drawing(nn.Module):
    """A loss that is drawn, whatever the batch."""

    @nn.compact
    def __call__(self, batch, *, train: bool):
        w = self.param("w", nn.initializers.ones, ())
        return {"loss": Sum(w * jax.random.normal(self.make_rng("corrupt")), 1.0, train=True)}


def test_draws_differ_by_step_and_repeat_for_a_step():
    first = states.init(Drawing(), TX, jax.random.key(0), draw(0))
    train = quick_jit(functools.partial(states.train_step, Drawing(), optax.sgd(0.0)))
    second, _ = train(jax.random.key(1), first, draw(0))
    losses = [
        train(jax.random.key(1), at, draw(0))[1].sums["loss"].total for at in (first, first, second)
    ]
    assert losses[0] == losses[1] != losses[2]


def test_a_batch_without_weight_moves_nothing_by_its_gradient():
    batch = draw(2) | {"weight_B": np.zeros(B, np.float32)}
    _, metrics = step()(jax.random.key(1), begin(), batch)
    assert metrics.grad_norm == 0


def test_eval_reads_the_memory_and_hands_on_the_next():
    state, batch = begin(), draw(2)
    run = functools.partial(states.eval_step, Objective(), jax.random.key(0), state.params)
    sums, carry = run(state.carry, batch)
    fresh = states.init_carry(Objective(), jax.random.key(0), batch)
    others, _ = run(fresh, batch)
    assert sums["loss"].total != others["loss"].total
    assert not np.any(fresh["memory"]["h_NBMD"])
    np.testing.assert_array_equal(carry["memory"]["h_NBMD"][0, :, -1], batch["x_BD"])


@pytest.mark.parametrize("parts", [1, 2])
def test_statistics_are_the_mean_over_parts_and_the_gradient_leaves_them(parts):
    train = functools.partial(states.train_step, NormedObjective(), TX, parts=parts)
    before, batch = states.init(NormedObjective(), TX, jax.random.key(0), draw(0)), draw(1)
    after, _ = quick_jit(train)(jax.random.key(1), before, batch)
    real = [np.arange(B)[part::parts] for part in range(parts)]
    real = [rows[batch["weight_B"][rows] > 0] for rows in real]
    for name, start, measure in (
        ("mean_D", 0, lambda x_BD: x_BD.mean(0)),
        ("variance_D", 1, lambda x_BD: x_BD.var(0, ddof=1)),
    ):
        measured = np.mean([measure(batch["x_BD"][rows]) for rows in real], axis=0)
        found, expected = after.params["norm"][name], 0.9 * start + 0.1 * measured
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert before.carry == after.carry == {}


def test_a_step_that_is_not_finite_leaves_the_statistics():
    before = states.init(NormedObjective(), TX, jax.random.key(0), draw(0))
    broken = draw(1)
    broken["y_B"][0] = np.nan
    train = quick_jit(functools.partial(states.train_step, NormedObjective(), TX))
    after, _ = train(jax.random.key(1), before, broken)
    equal(after.params, before.params)
