"""A run begins by saying what it computes on, how large it is, and how long it reads."""

import types

import pytest

from pretrain.data.batches.phases import Phases
from pretrain.training.reports.opening import count_epochs, describe_compiling
from tests.support import regression


def layout(B: int, L: int, steps: int):
    return types.SimpleNamespace(B=B, L=L, steps_per_epoch=steps, shuffle=True)


def test_the_first_lines_name_devices_mesh_size_and_tokens(tmp_path, capsys):
    regression.run(tmp_path)
    devices, size, length, begin, *_ = capsys.readouterr().err.splitlines()
    assert devices.startswith("1 x cpu, mesh data=1 fsdp=1 tensor=1")
    assert " parameters; with the optimizer " in size
    assert " epochs" in length
    assert begin.startswith("beginning at step 0")


@pytest.mark.parametrize(
    ("train", "steps", "epochs"),
    [
        (layout(8, 32, 50), 20, 0.4),
        (Phases(layout(8, 32, 50), layout(2, 128, 10), 30), 35, 0.6 + 0.5),
        (Phases(layout(8, 32, 50), layout(2, 128, 10), 30), 20, 0.4),
    ],
)
def test_epochs_of_phases_add_up(train, steps, epochs):
    assert count_epochs(train, steps) == pytest.approx(epochs)


@pytest.mark.parametrize(
    ("start", "steps", "is_named"), [(0, 35, True), (29, 35, True), (30, 35, False), (0, 20, False)]
)
def test_a_step_whose_rows_differ_is_named_as_one_that_compiles(start, steps, is_named):
    train = Phases(layout(8, 32, 50), layout(2, 128, 10), 30)
    said = describe_compiling(train, start, steps)
    assert said.startswith("the first step compiles")
    assert ("step 31, which has other rows" in said) == is_named
    alike = Phases(layout(8, 32, 50), layout(8, 32, 50), 30)
    assert "other rows" not in describe_compiling(alike, start, steps)
