"""Rows are rolled and cut from places of their own."""

import jax.numpy as jnp
import numpy as np
import pytest

from modules.kernels import relative_shift

B, H = 2, 3


@pytest.mark.parametrize("roll", relative_shift.FORMS.values())
@pytest.mark.parametrize("R", [1, 2, 12, 16, 17])
def test_rows_are_rolled_by_their_own_numbers_on_every_platform(roll, R):
    x_BHPR = np.arange(B * H * 3 * R, dtype=np.float32).reshape(B, H, 3, R)
    by_BP = np.array([[0, 1, R - 1], [R // 2, R - 1, 1]]) % R
    rolled = roll(x_BHPR, jnp.asarray(by_BP))
    for b, h, p in np.ndindex(B, H, 3):
        np.testing.assert_array_equal(rolled[b, h, p], np.roll(x_BHPR[b, h, p], -by_BP[b, p]))
