"""Layer normalisation by its formula."""

import numpy as np
import pytest

from modules.layers.norm import Norm


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_norm_is_computed_in_float32(dtype):
    x = (100 + draw(3, 4, 16)).astype(dtype)
    scale_D, bias_D = draw(16, seed=1), draw(16, seed=2)
    y = Norm().apply({"params": {"scale_D": scale_D, "bias_D": bias_D}}, x)
    exact = np.asarray(x, np.float64)
    centred = exact - exact.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * scale_D + bias_D
    assert y.dtype == dtype
    np.testing.assert_allclose(
        np.asarray(y, np.float64), expected, atol=3e-5 if dtype == "float32" else 2e-2
    )
