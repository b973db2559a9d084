"""Tables hold every distance."""

import numpy as np
import pytest

from modules.layers import relative_attention
from modules.layers.relative_attention import transform_each, transform_joined
from tests.support.arrays import draw

M = 5


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("clamp_len", [-1, 3])
def test_the_table_holds_the_sinusoid_of_every_distance(clamp_len, backward):
    L, D = 4, 6
    table_RD = relative_attention.compute_sinusoids(
        L, M, D, clamp_len=clamp_len, is_backward=backward
    )
    assert table_RD.shape == (M + 2 * L, D)
    for row, distance in enumerate(range(M + L - 1, -L - 1, -1)):
        distance = -distance if backward else distance
        distance = max(-clamp_len, min(clamp_len, distance)) if clamp_len > 0 else distance
        angles = [distance / 10000 ** (2 * i / D) for i in range(D // 2)]
        np.testing.assert_allclose(table_RD[row], [*np.sin(angles), *np.cos(angles)], atol=2e-6)


def test_streams_that_are_joined_are_transformed_as_each():
    streams = [draw(2, length, 4, seed=length) for length in (5, 3)]
    each, joined = (
        form(lambda x: x - x.mean(-1, keepdims=True), streams)
        for form in (transform_each, transform_joined)
    )
    for one, other in zip(each, joined, strict=True):
        np.testing.assert_array_equal(one, other)
