"""The paper's GRU, one word after the other."""

import jax
import numpy as np

from modules.kernels.recurrent_cells import CellConfig, CellState, CellWeights
from modules.layers.gru import scan_reset_before

Z, L, B, D, U = 1, 4, 2, 3, 3


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_the_reset_gate_acts_on_the_state_before_the_product():
    rng = np.random.default_rng(0)
    shapes = [(Z, L, B, D), (Z, D, 3, U), (Z, U, 3, U), (Z, 3, U), (Z, B, U)]
    x, wx, wh, b, h = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    valid, not_reset = np.ones((Z, L, B), bool), np.ones((Z, L, B), bool)
    valid[0, 2, 0] = not_reset[0, 1, 1] = False
    given = (CellWeights(wx, wh, b), CellState(h), not_reset, valid)
    with jax.default_matmul_precision("highest"):
        y_ZLBU, state = scan_reset_before(CellConfig("gru"), x, *given)
    h_BU = h[0]
    for n in range(L):
        h_BU = np.where(not_reset[0, n][:, None], h_BU, 0)
        a_BGU = np.einsum("bd,dgu->bgu", x[0, n], wx[0]) + b[0]
        reset_BU = sigmoid(a_BGU[:, 0] + h_BU @ wh[0][:, 0])
        update_BU = sigmoid(a_BGU[:, 1] + h_BU @ wh[0][:, 1])
        candidate_BU = np.tanh(a_BGU[:, 2] + (reset_BU * h_BU) @ wh[0][:, 2])
        new_BU = (1 - update_BU) * candidate_BU + update_BU * h_BU
        valid_B1 = valid[0, n][:, None]
        np.testing.assert_allclose(y_ZLBU[0, n], np.where(valid_B1, new_BU, 0), atol=1e-5)
        h_BU = np.where(valid_B1, new_BU, h_BU)
    np.testing.assert_allclose(state.h_BD[0], h_BU, atol=1e-5)
