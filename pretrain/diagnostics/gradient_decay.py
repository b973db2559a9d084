"""Measures how the last loss's gradient falls with the distance of the input it is taken of.

Pascanu, Mikolov & Bengio 2013 (arXiv 1211.5063).
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from modules.layers.rnn import Recurrent
from pretrain.diagnostics.measurements import Decay
from pretrain.diagnostics.recurrent_weights import compute_spectrum, set_recurrent_weights


def measure_input_gradients(read: Callable, x_BLD, v_BD) -> jax.Array:
    """Returns |dL_T/dx_t|, [B, L], of the loss L_T = v . h_T.

    Args:
        read: x_BLD -> the last state h_BD.
        v_BD: the gradient of the loss with respect to the last state.
    """
    _, pull_back = jax.vjp(read, x_BLD)
    (dx_BLD,) = pull_back(v_BD)
    return jnp.linalg.norm(dx_BLD, axis=-1)


def measure_cell(
    cell: Mapping[str, Any],
    *,
    seed: int,
    T: int,
    U: int,
    B: int,
    burn_in: int = 0,
    kind: str = "",
    radius: float = 1.0,
) -> Decay:
    """Measures a recurrent layer at initialization, on normal inputs and in float64.

    Args:
        cell: fields of `Recurrent`.
        T: the largest distance.
        U: units, and width of an input.
        B: rows, each with inputs and a random loss of its own.
        burn_in: positions before those that count: the state begins at zero, where it is not yet
            what it will be.
        kind, radius: of the recurrent weights, see `set_recurrent_weights`; "": as initialized.
    """
    with jax.enable_x64(True):
        # Float32 underflows after 100 steps of a gradient that is halved in each.
        layer = Recurrent(U, **{**cell, "dtype": "float64"})
        keys = jax.random.split(jax.random.key(seed), 4)
        x_BLD = jax.random.normal(keys[0], (B, burn_in + T + 1, U), jnp.float64)
        v_BD = jax.random.normal(keys[1], (B, U), jnp.float64)
        # From unit length, the norm of a gradient says how much time has scaled it.
        v_BD /= jnp.linalg.norm(v_BD, axis=-1, keepdims=True)
        # One position is enough to make the parameters with.
        params = layer.init(keys[2], x_BLD[:, :1])["params"]
        if kind:
            params = set_recurrent_weights(params, keys[3], kind, radius)

        @jax.jit
        def measure(params, x_BLD, v_BD):
            def read(x_BLD):
                _, state = layer.apply({"params": params}, x_BLD)
                return state.h_BZD[:, 0]  # type: ignore[union-attr]

            return measure_input_gradients(read, x_BLD, v_BD)

        norm_BL = np.asarray(measure(params, x_BLD, v_BD))
    # From distance 1 on: at 0 an input does not pass through the recurrent weights.
    # With h_t = f(W h_{t-1} + x_t) and |f'| <= gamma the gradient vanishes if gamma times the
    # largest singular value of W is below 1.  It can explode only if the spectral radius of a
    # linear cell's W is above 1.
    return Decay(norm_BL.mean(0)[::-1][1 : T + 1], *compute_spectrum(params["wh_ZDGU"]))
