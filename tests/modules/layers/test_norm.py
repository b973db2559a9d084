"""Layer normalisation by its formula."""

import numpy as np
import pytest

from modules.layers.norm import Norm
from tests.support.arrays import draw


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 3e-5), ("bfloat16", 2e-2)])
def test_norm_is_computed_in_float32(dtype, atol):
    x = (100 + draw(3, 4, 16)).astype(dtype)
    scale_D, bias_D = draw(16, seed=1), draw(16, seed=2)
    y = Norm().apply({"params": {"scale_D": scale_D, "bias_D": bias_D}}, x)
    centred = x.astype(np.float64) - x.astype(np.float64).mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * scale_D + bias_D
    assert y.dtype == dtype
    np.testing.assert_allclose(y.astype(np.float64), expected, atol=atol)
