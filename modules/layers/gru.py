"""Scans a GRU whose reset gate acts on the state before the product (Cho et al. 2014).

cuDNN's and PyTorch's acts on the product: `Recurrent` has both.
"""

import functools

import jax
import jax.numpy as jnp

from modules.kernels.recurrent_cells import CellConfig, CellState
from modules.kernels.recurrent_scan import mask_rows, state_dtype


def scan_reset_before(config: CellConfig, x_ZLBD, weights, state, not_reset_ZLB, valid_ZLB):
    """Scans every direction, with the arguments and results of `scan_directions`."""
    # The gradient is autodiff's: the candidate's product waits for the reset gate, so that a step
    # has two products in turn, and no form of it is fast.
    scan = functools.partial(_scan_direction, config.unroll)
    return jax.vmap(scan)(x_ZLBD, weights, state, not_reset_ZLB, valid_ZLB)


def _scan_direction(unroll: int, x_LBD, w, state, not_reset_LB, valid_LB):
    dtype, wide = x_LBD.dtype, state_dtype(x_LBD.dtype)
    multiply = functools.partial(jnp.einsum, preferred_element_type=wide)

    def step(h_BD, inputs):
        a_BGU, not_reset_B, valid_B = inputs
        h_BD = mask_rows(not_reset_B, h_BD)
        # Reset and update in one product: neither waits for the other.
        both_BGU = multiply("BD,DGU->BGU", h_BD.astype(dtype), w.wh_DGU[:, :2])
        both_BGU = jax.nn.sigmoid(a_BGU[:, :2] + both_BGU)
        reset_BU, update_BU = both_BGU[:, 0], both_BGU[:, 1]
        left_BD = (reset_BU * h_BD).astype(dtype)
        new_BU = jnp.tanh(a_BGU[:, 2] + multiply("BD,DU->BU", left_BD, w.wh_DGU[:, 2]))
        new_BU = (1 - update_BU) * new_BU + update_BU * h_BD
        return mask_rows(valid_B, new_BU, h_BD), mask_rows(valid_B, new_BU).astype(dtype)

    # One product for all positions; only what waits for the state is within the scan.
    a_LBGU = multiply("LBD,DGU->LBGU", x_LBD, w.wx_DGU) + w.b_GU
    inputs = (a_LBGU, not_reset_LB, valid_LB)
    h_BD, y_LBD = jax.lax.scan(step, state.h_BD, inputs, unroll=unroll or 1)
    return y_LBD, CellState(h_BD)
