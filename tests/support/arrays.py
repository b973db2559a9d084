"""Arrays drawn for tests."""

import numpy as np


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Draws standard normal numbers, float32."""
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
