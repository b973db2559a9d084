"""Rows read by windows are rows read at once, under a band."""

import functools

import jax
import numpy as np

from modules.backbones.windows import encode_windows
from modules.masks import Mask
from tests.support import xlnet_reference as reference
from tests.support.compiler import quick_jit
from tests.support.xlnet_inputs import backbone


def test_windows_with_memory_are_the_whole_row_under_a_band():
    cfg = reference.Config(n_token=40, n_layer=3, mem_len=6, reuse_len=2)
    params = reference.ours(reference.random_weights(cfg, 2), cfg)
    rng, L = np.random.default_rng(0), 4
    tokens_BL, segments_BL = rng.integers(0, 40, (2, 12)), rng.integers(0, 2, (2, 12))
    valid_BL = np.arange(12) >= np.array([[0], [5]])
    call = functools.partial(backbone(cfg).apply, train=False, segments_BL=segments_BL)
    begin_L, key_L = np.arange(12) // L * L, np.arange(12)
    near = (key_L >= begin_L[:, None] - 6) & (key_L < begin_L[:, None] + L)
    with jax.default_matmul_precision("highest"):
        read = lambda p: call({"params": p}, tokens_BL, valid_BL, L, method=encode_windows)  # noqa: E731
        by_window = quick_jit(read)(params)
        masked = quick_jit(lambda p, mask: call({"params": p}, tokens_BL, mask=mask).h)
        whole, at_once = (
            masked(params, Mask(valid_BL=valid_BL, visible_BLJ=visible[None]))
            for visible in (near, near | True)
        )
    tolerance = 2e-6 * float(np.abs(whole[valid_BL]).max())
    np.testing.assert_allclose(by_window[valid_BL], whole[valid_BL], atol=tolerance, rtol=0)
    assert not np.allclose(by_window[valid_BL], at_once[valid_BL], atol=1e-2)
