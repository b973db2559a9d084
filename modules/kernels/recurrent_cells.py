"""One step of an LSTM, a GRU and a plain RNN without its products, forwards and backwards.

Gates are stacked in a dimension G.  Arithmetic is in the dtype of the states, float32 or wider.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


class CellConfig(NamedTuple):
    """Settings of a recurrent layer that are known before it is compiled.

    Attributes:
        cell: a key of `CELLS`.
        activation: a key of `RNN_ACTIVATIONS`, of the plain RNN.
        clip_cell, clip_projection: limits of an LSTM's cell and projection; 0: none.
        unroll: positions per step of the scan; 0: what suits the platform.
    """

    cell: str
    activation: str = "tanh"
    clip_cell: float = 0.0
    clip_projection: float = 0.0
    unroll: int = 1


class CellState(NamedTuple):
    """Output and, of an LSTM alone, cell of one direction."""

    h_BD: Any
    c_BU: Any = None


class CellWeights(NamedTuple):
    """Weights of one direction; a field is None if the cell does not use it.

    Attributes:
        wx_DGU, wh_DGU: of the input and of the state.
        b_GU: bias of the sum of both; with `bh_GU` of the input's share alone.
        bh_GU: bias of the state's share (GRU).
        wp_UD: the projection of an LSTM's output.
    """

    wx_DGU: Any
    wh_DGU: Any
    b_GU: Any
    bh_GU: Any = None
    wp_UD: Any = None


class CellGrads(NamedTuple):
    """Gradients of a step with respect to everything but the weights.

    Attributes:
        a_BGU: with respect to the gates' share of the input.
        r_BGU: with respect to the gates' share of the state; None: the same as `a_BGU`.
        state: with respect to the state before, without the path through the product.
        out_BU: no gradient but the cell's output, computed again for a projection.
    """

    a_BGU: Any
    r_BGU: Any
    state: CellState
    out_BU: Any = None


class Cell(NamedTuple):
    """A step without its products.

    Attributes:
        G: gates.
        forward: (config, a_BGU, r_BGU, state) -> (out_BU, c_BU or None, residuals).
        backward: (config, residuals, state, dout_BU, dc_BU or None) -> CellGrads.
        activate: (the sum of both shares) -> [B, G, U], the residuals in one array; None: they
            are none of this shape.
    """

    G: int
    forward: Callable[..., tuple[Any, Any, Any]]
    backward: Callable[..., CellGrads]
    activate: Callable[[Any], Any] | None = None


def _step_lstm(config: CellConfig, a_BGU, r_BGU, state: CellState):
    # Gates i, j, f, o in the order of TensorFlow's LSTMCell: in, candidate, forget, out.
    z_BGU = a_BGU + r_BGU
    i, f, o = (jax.nn.sigmoid(z_BGU[:, gate]) for gate in (0, 2, 3))
    j = jnp.tanh(z_BGU[:, 1])
    # As in TensorFlow's LSTMCell: what is read and what is handed on is the clipped cell.
    c_BU = clip(f * state.c_BU + i * j, config.clip_cell)
    return o * jnp.tanh(c_BU), c_BU, (i, j, f, o)


def _activate_lstm(z_BGU):
    is_candidate_GU = jnp.arange(4)[:, None] == 1
    return jnp.where(is_candidate_GU, jnp.tanh(z_BGU), jax.nn.sigmoid(z_BGU))


def _step_lstm_backward(config: CellConfig, residuals, state: CellState, dm_BU, dc_BU) -> CellGrads:
    i, j, f, o = residuals
    # Neither the cell nor its tanh is kept: both follow from the gates and the state before.
    unclipped_BU = f * state.c_BU + i * j
    t_BU = jnp.tanh(clip(unclipped_BU, config.clip_cell))  # cheaper than to keep it
    dc_BU = dc_BU + dm_BU * o * (1 - t_BU * t_BU)
    dc_BU = clip_grad(dc_BU, unclipped_BU, config.clip_cell)
    # Derivatives of sigmoid and tanh from their values, as of all gates below.
    di, dj = dc_BU * j * i * (1 - i), dc_BU * i * (1 - j * j)
    df, do = dc_BU * state.c_BU * f * (1 - f), dm_BU * t_BU * o * (1 - o)
    return CellGrads(stack_gates(di, dj, df, do), None, CellState(0.0, dc_BU * f), o * t_BU)


def _step_gru(config: CellConfig, a_BGU, r_BGU, state: CellState):
    # Gates reset, update, candidate; the reset acts on the state's product, as in cuDNN.
    r, u = (jax.nn.sigmoid(a_BGU[:, gate] + r_BGU[:, gate]) for gate in (0, 1))
    n = jnp.tanh(a_BGU[:, 2] + r * r_BGU[:, 2])
    return (1 - u) * n + u * state.h_BD, None, (r, u, n, r_BGU[:, 2])


def _step_gru_backward(config: CellConfig, residuals, state: CellState, dh_BU, dc_BU) -> CellGrads:
    r, u, n, product = residuals  # `product`: the candidate's share of the state, before the reset
    dn = dh_BU * (1 - u) * (1 - n * n)
    dr, du = dn * product * r * (1 - r), dh_BU * (state.h_BD - n) * u * (1 - u)
    return CellGrads(stack_gates(dr, du, dn), stack_gates(dr, du, dn * r), CellState(dh_BU * u))


def _step_rnn(config: CellConfig, a_BGU, r_BGU, state: CellState):
    h_BU = RNN_ACTIVATIONS[config.activation][0](a_BGU[:, 0] + r_BGU[:, 0])
    return h_BU, None, h_BU


def _step_rnn_backward(config: CellConfig, h_BU, state: CellState, dh_BU, dc_BU) -> CellGrads:
    dz_BGU = (dh_BU * RNN_ACTIVATIONS[config.activation][1](h_BU))[:, None]
    return CellGrads(dz_BGU, None, CellState(0.0))


CELLS = {
    "lstm": Cell(4, _step_lstm, _step_lstm_backward, _activate_lstm),
    "gru": Cell(3, _step_gru, _step_gru_backward),
    "rnn": Cell(1, _step_rnn, _step_rnn_backward),
}
RNN_ACTIVATIONS: dict[str, tuple[Callable, Callable]] = {  # and the derivative, from the result
    "tanh": (jnp.tanh, lambda y: 1 - y * y),
    "relu": (jax.nn.relu, lambda y: y > 0),
}


def clip(x, limit: float):
    """Clips to [-limit, limit]; 0: not at all."""
    return jnp.clip(x, -limit, limit) if limit else x


def clip_grad(dx, x, limit: float):
    """Returns the gradient of `clip` at `x`: 0 where it was clipped."""
    # The limit itself counts as clipped, so that a clipped value shows where it was.
    return jnp.where(jnp.abs(x) < limit, dx, 0) if limit else dx


def stack_gates(*gates_BU):
    """Stacks G arrays [B, U] to [B, G, U]."""
    return jax.lax.platform_dependent(*gates_BU, **FORMS)


def _concatenate_gates(*gates_BU):
    # Side by side in two dimensions: a stack would be worked out anew by each of its readers, and
    # a training step of a small ELMo takes 1.13 times as long with it.
    return jnp.concatenate(gates_BU, 1).reshape(len(gates_BU[0]), len(gates_BU), -1)


FORMS = {"cpu": _concatenate_gates, "default": lambda *gates_BU: jnp.stack(gates_BU, 1)}
