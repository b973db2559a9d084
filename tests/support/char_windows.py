"""Words of few letters, and the answers of character filters window by window."""

import numpy as np

C, E, W, PAD = 261, 3, 7, 260
FILTERS = ((1, 2), (2, 3), (4, 5))
X = 10


def draw(dtype=np.float64, shape=(2, 5)):
    """A table, kernels, words of few different letters filled up with PAD, slopes."""
    rng = np.random.default_rng(0)
    table_CE = rng.uniform(-1, 1, (C, E)).astype(dtype)
    kernels = [rng.normal(0, 1, (w, E, many)).astype(dtype) for w, many in FILTERS]
    chars = rng.integers(97, 100, (*shape, W))
    chars = np.where(np.arange(W) < rng.integers(0, W + 1, (*shape, 1)), chars, PAD)
    return table_CE, kernels, chars, rng.normal(0, 1, (*shape, X)).astype(dtype)


def window_by_window(table_CE, kernels, chars_BPW):
    """Every answer of every filter: a list of [B, P, places, X]."""
    x = np.asarray(table_CE, np.float64)[chars_BPW]
    return [
        np.stack(
            [np.einsum("BPwE,wEX->BPX", x[:, :, j : j + len(k)], k) for j in range(W - len(k) + 1)],
            2,
        )
        for k in kernels
    ]
