"""Chosen steps of a run are traced, in the form that xprof reads."""

import jax
import pytest

from pretrain.runtime.errors import UserError
from pretrain.training import logging
from pretrain.training.profiler import Profile
from tests.support import tiny_runs as toys

pytest_plugins = ["tests.support.tiny_runs"]


def traced(path) -> list[int]:
    """The numbers of the steps in a trace, in order."""
    data = jax.profiler.ProfileData.from_file(str(path))
    events = [e for plane in data.planes for line in plane.lines for e in line.events]
    numbers = [dict(e.stats)["step_num"] for e in events if e.name == "train"]
    return sorted(numbers)


def test_the_steps_asked_for_are_traced_and_nothing_else_changes(toy, tmp_path):
    few = {"train.eval_every": 0, "train.save_every": 100}
    config = toy.config("bilm", few)
    plain = toys.train(config, tmp_path / "plain")
    config = toy.config("bilm", few | {"profile": "2-3,6"})
    toys.assert_same(toys.train(config, tmp_path / "traced"), plain)
    files = (tmp_path / "traced" / "profile").glob("plugins/profile/*/*.xplane.pb")
    assert {path.parent.name: traced(path) for path in files} == {
        "steps-2-3": [2, 3],
        "steps-6-6": [6],
    }
    assert not (tmp_path / "plain" / "profile").exists()
    assert logging.read_lines(tmp_path / "traced" / "metrics.jsonl")


@pytest.mark.parametrize(
    "steps",
    ["x", "5-", "-5", "3-2", "0-4", "8-11", "2-4,5-6", "2-4,3-6", "7-8,2-3", "1:4", "1.5", "-"],
)
def test_steps_that_make_no_sense_are_refused_at_the_door(tmp_path, steps):
    with pytest.raises(UserError, match=r"profile="):
        Profile(steps, tmp_path, 10)


@pytest.mark.parametrize(
    ("steps", "ends"),
    [("", {}), ("4", {4: 4}), ("1-10", {1: 10}), ("2-4, 6-8", {2: 4, 6: 8})],
)
def test_steps_are_read_as_first_and_last(tmp_path, steps, ends):
    assert Profile(steps, tmp_path, 10).ends == ends
