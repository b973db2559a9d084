"""Chosen steps of a run are traced, in the form that xprof reads."""

import jax
import pytest

from pretrain.runtime.errors import UserError
from pretrain.training.profiler import Profile
from pretrain.training.reports import metrics_file
from tests.support import regression
from tests.support import tiny_runs as toys


def traced(path) -> list[int]:
    """The numbers of the steps in a trace, in order."""
    data = jax.profiler.ProfileData.from_file(str(path))
    events = [e for plane in data.planes for line in plane.lines for e in line.events]
    numbers = [dict(e.stats)["step_num"] for e in events if e.name == "train"]
    return sorted(numbers)


def test_the_steps_asked_for_are_traced_and_nothing_else_changes(tmp_path):
    plain = regression.run(tmp_path / "plain").state
    toys.assert_same(regression.run(tmp_path / "traced", profile="2-3,6").state, plain)
    files = (tmp_path / "traced" / "profile").glob("plugins/profile/*/*.xplane.pb")
    assert {path.parent.name: traced(path) for path in files} == {
        "steps-2-3": [2, 3],
        "steps-6-6": [6],
    }
    assert not (tmp_path / "plain" / "profile").exists()
    assert metrics_file.read_lines(tmp_path / "traced" / "metrics.jsonl")


@pytest.mark.parametrize(
    "steps",
    ["x", "5-", "-5", "3-2", "0-4", "8-11", "2-4,5-6", "2-4,3-6", "7-8,2-3", "1:4", "1.5", "-"],
)
def test_steps_that_make_no_sense_are_refused_at_the_door(tmp_path, steps):
    with pytest.raises(UserError, match=r"profile="):
        Profile(steps, tmp_path, 10)


@pytest.mark.parametrize(
    ("steps", "ends"), [("", {}), ("4", {4: 4}), ("1-10", {1: 10}), ("2-4, 6-8", {2: 4, 6: 8})]
)
def test_steps_are_read_as_first_and_last(tmp_path, steps, ends):
    assert Profile(steps, tmp_path, 10).ends == ends
