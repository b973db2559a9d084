"""Arrays drawn for tests."""

import pathlib
from collections.abc import Callable

import jax
import numpy as np

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    """Draws standard normal numbers, float32."""
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def draw_variables(init: Callable, *args, scale: float = 1.0, seed: int = 0, **kwargs):
    """Draws what `init` would make, without compiling it: normal floats; all else is 0."""
    rng = np.random.default_rng(seed)

    def leaf(path, x):
        is_weight = path[0].key == "params" and x.dtype.kind == "f"
        return (
            rng.normal(0, scale, x.shape).astype(x.dtype)
            if is_weight
            else np.zeros(x.shape, x.dtype)
        )

    shapes = jax.eval_shape(lambda: init(*args, **kwargs))
    return jax.tree_util.tree_map_with_path(leaf, dict(shapes))
