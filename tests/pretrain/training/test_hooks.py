"""Hooks stop a run, divide its rate and average, and the loop stays as it is."""

import contextlib

import jax
import numpy as np
import pytest

from pretrain.distributed import processes
from pretrain.runtime.errors import UserError
from pretrain.training import anneal, hooks
from pretrain.training.hooks import Hook, Report
from tests.support import regression
from tests.support import tiny_runs as toys


class AverageFrom(Hook):
    """Switches averaging on after a step, and records what it averages."""

    name = "average"
    scalars = {"average_rate": 0.0}

    def __init__(self, start, rate):
        self.start, self.rate, self.seen = start, rate, {}

    def __call__(self, step, state, report):
        self.seen[step] = jax.device_get((state.params, state.average))
        if step == self.start:
            report.scalars["average_rate"] = self.rate


class Ask(Hook):
    """Makes a request of the run after a step, and counts its own calls."""

    def __init__(self, request, name="ask", step=2):
        self.request, self.name, self.step, self.calls = request, name, step, []

    def __call__(self, step, state, report):
        self.calls.append(step)
        if step == self.step:
            self.request(report)


@pytest.fixture
def train(tmp_path):
    """(folder, *hooks, **changes of the recipe) -> the final state of a run."""

    def train(name, *hooks, **changes):
        return regression.run(tmp_path / name, *hooks, **changes).state

    return train


def rates(workdir) -> list[float]:
    return [line["lr"] for line in toys.written(workdir) if "lr" in line]


def plateau(**fields):
    """Of a loss that falls every second evaluation is no better."""
    given = dict(metric="held_out/loss", patience=1, factor=1 / 4, cuts=2, length=2) | fields
    return anneal.Hook(**given)


def test_a_plateau_divides_the_rate_and_resumes_exactly(train, tmp_path, monkeypatch):
    often = dict(train__eval_every=1)
    plain = train("plain", **often)
    rests = train("rests", plateau(patience=9), **often)
    toys.assert_same((rests.params, rests.opt), (plain.params, plain.opt))
    whole = train("whole", plateau(), **often)
    before, after = rates(tmp_path / "plain"), rates(tmp_path / "whole")
    np.testing.assert_allclose(
        after, np.array(before) * np.repeat([1, 1 / 4, 1 / 16], 2), rtol=1e-6
    )
    assert float(whole.scalars["lr_scale"]) == 1 / 16

    # The fourth question whether to stop falls into the evaluation that the hook waits for.
    calls = iter(range(1, 99))
    monkeypatch.setattr(processes.Stop, "__call__", lambda _: next(calls) >= 4)
    assert int(train("resumed", plateau(), **often).step) == 2
    monkeypatch.undo()
    toys.assert_same(train("resumed", plateau(), **often), whole)
    assert toys.written(tmp_path / "resumed") == toys.written(tmp_path / "whole")


def test_averaging_is_switched_on_at_a_step(train):
    hook = AverageFrom(3, 0.75)
    train("run", hook, train__eval_every=0)
    for step in (1, 2, 3):
        toys.assert_same(*hook.seen[step])
    expected = hook.seen[3][0]
    for step in (4, 5, 6):
        params, average = hook.seen[step]
        expected = jax.tree.map(lambda a, p: 0.75 * a + 0.25 * p, expected, params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), average, expected)


def test_an_error_is_raised_after_the_step_is_saved(train, tmp_path):
    asking = Ask(lambda report: report.fail(UserError("that will do")))
    with pytest.raises(UserError, match="that will do"):
        train("run", asking, train__save_every=0, train__eval_every=0)
    assert toys.checkpoints(tmp_path / "run") == [2]


def test_a_finished_run_stays_finished_while_it_has_the_hook(train, tmp_path):
    finishing = Ask(Report.finish)
    assert int(train("run", finishing, train__eval_every=0).step) == 2
    assert int(train("run", Ask(Report.finish, step=3), train__eval_every=0).step) == 2
    assert int(train("run", Ask(Report.finish, "another", step=5)).step) == 5


# --- the order of calls ----------------------------------------------------------------------


def watch(_kind, _step):
    return contextlib.nullcontext()


def call(*requests):
    """Calls hooks at step 2 that make these requests: (who was called, the report)."""
    report, asked = Report(), [Ask(x, str(number)) for number, x in enumerate(requests)]
    hooks.call_hooks(asked, 2, State(), report, watch)
    return [hook.name for hook in asked if hook.calls], report


class State:
    scalars = None


def nothing(_report):
    pass


def test_an_interruption_leaves_it_and_all_later_hooks_pending():
    called, report = call(nothing, Report.interrupt, nothing)
    assert called == ["0", "1"]
    assert (report.pending, report.stop, report.is_finished) == (["1", "2"], True, False)


def test_after_an_error_no_hook_is_called_and_the_first_counts():
    first, second = UserError("first"), UserError("second")
    called, report = call(nothing, lambda report: report.fail(first), nothing)
    assert called == ["0", "1"]
    report.fail(second)
    assert report.error is first


def test_after_a_request_to_stop_the_others_are_called():
    called, report = call(Report.finish, nothing)
    assert called == ["0", "1"]
    assert (report.stop, report.is_finished, report.pending) == (True, True, [])


def test_each_hook_has_a_period_and_all_are_due_at_the_last_step():
    asked = [Ask(nothing, str(every)) for every in (0, 1, 2, 3)]
    for hook in asked:
        hook.every = int(hook.name)
    due = {
        step: [x.every for x in hooks.select_due_hooks(asked, step, last=5)] for step in range(1, 6)
    }
    assert due == {1: [1], 2: [1, 2], 3: [1, 3], 4: [1, 2], 5: [0, 1, 2, 3]}


def test_a_scalar_that_the_state_lacks_is_refused():
    def change(report):
        report.scalars["lr_scale"] = 0.5

    with pytest.raises(ValueError, match=r"'lr_scale' is not among the state's scalars: \[\]"):
        call(change)
