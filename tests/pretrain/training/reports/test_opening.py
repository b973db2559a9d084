"""A run begins by saying what it computes on, how large it is, and how long it reads."""

import types

import pytest

from pretrain.data.batches.phases import Phases
from pretrain.training.reports.opening import count_epochs
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
