"""Averaging begins once an evaluation is worse than all but the latest before it."""

import json
import math

import jax
import numpy as np
import pytest

from pretrain.training import hooks, nt_asgd
from tests.support import regression
from tests.support import tiny_runs as toys

# The trigger, counted from 0: the evaluation with two before it is compared with the first alone.
TABLE = [
    ([5, 4, 3, 2, 1], None),  # falls
    ([5, 4, 6, 7], 3),  # above the first
    ([5, 6, 4, 4.5, 4.2], None),  # not above the best but for the latest two
    ([3, 2, 2.5, 2.6, 2.9], 4),  # above the second
    ([3, 9], None),  # too few before it
    ([3, math.nan, 2, 2.5, 4], 4),  # what is not a number is never the best
]


def evaluate(hook, step, loss, sign=1):
    """What a hook asks for after an evaluation, and the hook as a resumed run has it."""
    hook(step, None, hooks.Report())  # a step without an evaluation counts nothing
    hook(step, None, report := hooks.Report(held_out={"dev/loss": sign * loss}))
    again = nt_asgd.Hook(hook.metric, hook.n)
    again.load_state_dict(json.loads(json.dumps(hook.state_dict())), hooks.Report())
    return report.scalars, again


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("losses", "trigger"), TABLE)
def test_the_trigger_is_the_paper_s_also_when_resumed(losses, trigger, sign):
    hook = nt_asgd.Hook("-dev/loss" if sign > 0 else "dev/loss", n=2)
    asked = {}
    for number, loss in enumerate(losses):
        scalars, hook = evaluate(hook, 10 * number, loss, sign)
        asked |= {number: scalars["average_from"]} if scalars else {}
    assert asked == ({} if trigger is None else {trigger: 10 * trigger})


def test_a_negative_number_of_evaluations_is_refused():
    with pytest.raises(ValueError, match="n=-1: it is a number of evaluations"):
        nt_asgd.Hook("-dev/loss", n=-1)


class Record(hooks.Hook):
    """Keeps the parameters and their average after every step."""

    name = "record"

    def __init__(self):
        self.seen = {}

    def __call__(self, step, state, report):
        self.seen[step] = jax.device_get((state.params, state.average))


class Trigger(nt_asgd.Hook):
    """Is triggered by the first evaluation, at step 3."""

    def load_state_dict(self, state, report):
        self.n, self.values = 0, [math.inf]


def test_from_the_trigger_on_the_average_is_the_mean_of_all_iterates(tmp_path):
    record, trigger = Record(), Trigger("-held_out/loss")
    regression.run(tmp_path, record, trigger)
    for step in (1, 2, 3):
        toys.assert_same(*record.seen[step])
    for step in (4, 5, 6):
        iterates = [record.seen[n][0] for n in range(4, step + 1)]
        mean = jax.tree.map(lambda *x: np.mean(x, axis=0), *iterates)
        close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5)  # noqa: E731
        jax.tree.map(close, record.seen[step][1], mean)
