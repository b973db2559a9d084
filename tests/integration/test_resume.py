"""A run that stopped anywhere and went on is, bit for bit, the run that never stopped."""

import jax
import pytest

from pretrain.distributed import processes
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]

CASES = {
    "plain": {},
    "averaged in parts": {"train.parts": 2, "train.average": 0.9},
    "reported rarely": {"train.log_every": 3},
}
CALLS = [1, 3, 5, 9]  # 3 and 9 fall into an evaluation, which asks before each of its batches
EACH = [("plain", call) for call in CALLS] + [(case, 2) for case in CASES]
# One with rows of many lengths and carried states, and one whose rows hold several examples.
QUICK = {("awd", "plain", 5), ("packed", "plain", 5)}


def stop_at(monkeypatch, call: int | None) -> None:
    """Has the request to terminate heard at this call of `stop()`, and at all after it."""

    class Stop:
        calls = 0

        def __call__(self) -> bool:
            self.calls += 1
            return call is not None and self.calls >= call

    monkeypatch.setattr(processes, "Stop", Stop)


@pytest.fixture(scope="module")
def straight(toy, tmp_path_factory):
    """Runs that never stop, each done once: (final state, lines written)."""
    done = {}

    def run(recipe, case):
        if (recipe, case) not in done:
            workdir = tmp_path_factory.mktemp("straight")
            state = jax.device_get(toys.train(toy.config(recipe, CASES[case]), workdir))
            done[recipe, case] = state, toys.written(workdir)
        return done[recipe, case]

    return run


@pytest.mark.parametrize(
    ("recipe", "case", "call"),
    [
        pytest.param(recipe, *each, marks=[] if (recipe, *each) in QUICK else [pytest.mark.slow])
        for recipe in (*toys.RECIPES, *toys.MORE)
        for each in EACH
    ],
)
def test_stopping_and_resuming_changes_nothing(
    toy, tmp_path, monkeypatch, straight, recipe, case, call
):
    state, lines = straight(recipe, case)
    config = toy.config(recipe, CASES[case])
    stop_at(monkeypatch, call)
    stopped = toys.train(config, tmp_path)
    assert 0 < int(stopped.step) <= toys.STEPS
    assert toys.checkpoints(tmp_path)[-1] == int(stopped.step)
    stop_at(monkeypatch, None)
    toys.assert_same(toys.train(config, tmp_path), state)
    assert toys.written(tmp_path) == lines
