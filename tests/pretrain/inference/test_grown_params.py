"""Parameters grow by rows and positions, and by nothing else."""

import numpy as np
import pytest

from pretrain.inference.grown_params import grow_param, interpolate
from pretrain.runtime.errors import UserError

OLD_VD, OLD_LD = np.arange(6.0).reshape(3, 2), np.array([[0.0, 4], [2, 0], [4, 8]])


@pytest.mark.parametrize(
    ("name", "old", "positions", "rest"),
    [
        ("backbone/token_VD", OLD_VD, "new", [[2, 3]] * 2),
        ("head/kernel_DV", OLD_VD.T, "new", np.array([[2, 3]] * 2).T),
        ("head/bias_V", np.array([1.0, 2, 6]), "new", [3, 3]),
        ("backbone/segment_SD", OLD_VD, "new", [[2, 3]] * 2),
        ("backbone/position_LD", OLD_LD, "new", [[9, 9]] * 2),
    ],
)
def test_new_rows_begin_as_the_mean_and_new_positions_as_drawn(name, old, positions, rest):
    axis = name.rpartition("_")[2].index(next(x for x in "VSL" if x in name.rpartition("_")[2]))
    shape = [n + 2 if i == axis else n for i, n in enumerate(old.shape)]
    grown, outcome = grow_param(name, old, np.full(shape, 9.0), positions)
    np.testing.assert_array_equal(grown, np.concatenate([old, rest], axis))
    assert outcome.startswith("grown: 2 ")


def test_interpolated_positions_keep_their_ends_and_order():
    grown, outcome = grow_param("position_LD", OLD_LD, np.zeros((5, 2)), "interpolated")
    np.testing.assert_allclose(grown, [[0, 4], [1, 2], [2, 0], [3, 4], [4, 8]])
    assert outcome == "grown: 2 positions, interpolated"
    np.testing.assert_array_equal(interpolate(np.array([[7.0]]), 3, 0), [[7]] * 3)


@pytest.mark.parametrize(
    ("name", "shape"), [("layers/w_DF", (3, 4)), ("token_VD", (2, 2)), ("token_VD", (5, 3))]
)
def test_other_widths_and_fewer_rows_are_refused(name, shape):
    with pytest.raises(UserError, match=f"{name}: .* in the run to go on from"):
        grow_param(name, OLD_VD, np.zeros(shape), "new")
