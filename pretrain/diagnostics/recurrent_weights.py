"""Random recurrent weights of a known spectrum, and the spectrum of given ones."""

import math
from typing import Any

import jax
import numpy as np

from modules.layers import params


def set_recurrent_weights(tree: Any, rng: jax.Array, kind: str, radius: float) -> Any:
    """Replaces the recurrent weights of every gate and direction, `wh_ZDGU`, by random ones.

    Args:
        tree: parameters; of widths D = U.
        kind: "orthogonal" (Saxe et al. 2014, arXiv 1312.6120: all singular values are `radius`),
            or "normal": independent entries, of spectral radius `radius` for many units (the
            circular law) and of a largest singular value of twice that.
        radius: the spectral radius.
    """

    def draw(path, w):
        if path[-1].key != "wh_ZDGU":
            return w
        Z, D, G, U = w.shape
        init = jax.nn.initializers.orthogonal(radius)
        if kind == "normal":
            init = params.normal(radius / math.sqrt(D))
        # Each gate apart: one matrix of all gates would have another spectrum.
        w_ZGDU = jax.vmap(lambda key: init(key, (D, U), w.dtype))(jax.random.split(rng, Z * G))
        return w_ZGDU.reshape(Z, G, D, U).swapaxes(1, 2)

    return jax.tree_util.tree_map_with_path(draw, tree)


def compute_spectrum(wh_ZDGU) -> tuple[float, float]:
    """Returns the largest singular value and spectral radius of any gate's recurrent weights."""
    w_GDU = np.moveaxis(np.asarray(wh_ZDGU, np.float64)[0], 1, 0)
    sigma = np.linalg.norm(w_GDU, 2, (1, 2)).max()
    return float(sigma), float(np.abs(np.linalg.eigvals(w_GDU)).max())
