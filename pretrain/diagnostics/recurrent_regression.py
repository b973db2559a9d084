"""A recurrent network that says one number of a sequence, and its recurrent weights."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from modules.layers import params
from modules.layers.rnn import Recurrent
from modules.metrics import Sum


class Regression(nn.Module):
    """Guesses a number from the last state of a recurrent layer; an objective of training.

    Attributes:
        U: units.
        cell: fields of `Recurrent`, as dict(cell="lstm", forget_bias=1.0).
    """

    U: int
    cell: Mapping[str, Any]

    @nn.compact
    def __call__(self, batch, *, train: bool):
        """Returns the squared error of x_BLD's guesses of y_B."""
        del train  # nothing is dropped out
        _, state = Recurrent(self.U, **self.cell, name="recurrent")(batch["x_BLD"])
        w_U = params.param(self, "w_U", params.normal(1 / math.sqrt(self.U)), (self.U,), decay=True)
        b = params.param(self, "b", params.zeros, (), decay=False)
        error_B = state.h_BZD[:, 0] @ w_U + b - batch["y_B"]
        return {"loss": Sum(jnp.sum(error_B**2), jnp.float32(len(error_B)), train=True)}


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
        w_ZGDU = jax.vmap(lambda key: init(key, (D, U), w.dtype))(jax.random.split(rng, Z * G))
        return w_ZGDU.reshape(Z, G, D, U).swapaxes(1, 2)

    return jax.tree_util.tree_map_with_path(draw, tree)


def spectrum(wh_ZDGU) -> tuple[float, float]:
    """Returns the largest singular value and spectral radius of any gate's recurrent weights."""
    w_GDU = np.moveaxis(np.asarray(wh_ZDGU, np.float64)[0], 1, 0)
    sigma = np.linalg.norm(w_GDU, 2, (1, 2)).max()
    return float(sigma), float(np.abs(np.linalg.eigvals(w_GDU)).max())
