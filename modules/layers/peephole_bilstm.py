"""A biLSTM with peepholes, which reads one text from both ends or a text in each direction."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.kernels.recurrent_scan import state_dtype
from modules.layers import params
from modules.layers.peephole_lstm import PeepholeLSTM, scan_lstms
from modules.layers.rnn import State, to_reading_order, to_text_order

Z = 2


class PeepholeBiLSTM(nn.Module):
    """The layer that all tasks share (Liu, Qiu & Huang 2016, arXiv 1605.05101, section 4.3).

    Attributes:
        U, scale, dtype: see `PeepholeLSTM`.
        unroll: positions per step of the scan over positions.
    """

    U: int
    scale: float
    dtype: str
    unroll: int

    def setup(self):
        self.shared = [PeepholeLSTM(self.U, scale=self.scale, dtype=self.dtype) for _ in range(Z)]
        params.set_depths(self, shared_0=1, shared_1=1)

    def initial_state(self, B: int) -> State:
        """Returns the states of B rows before their first word: zeros."""
        zeros_BZU = jnp.zeros((B, Z, self.U), state_dtype(self.dtype))
        return State(zeros_BZU, zeros_BZU)

    def __call__(self, x_BLD, valid_BL):
        """Reads a text from both ends: [B, L, 2 U], forwards first."""
        x_BZLD, valid_BZL = (to_reading_order(x, Z) for x in (x_BLD, valid_BL))
        h_ZBLU, _ = scan_lstms(self._gates(x_BZLD), valid_BZL.swapaxes(0, 1), self.unroll)
        h_BLZU = to_text_order(h_ZBLU.swapaxes(0, 1))
        return h_BLZU.reshape(*x_BLD.shape[:2], -1).astype(self.dtype)

    def read_separately(self, x_BZLD, reset_BZL, state: State | None):
        """Reads a text in each direction, in its order of reading, as a language model does.

        Args:
            reset_BZL: True: the states are cleared before this word; None: nowhere.
            state: as `initial_state`, or as an earlier call returned it; None: zeros.

        Returns:
            (h_BZLU, state).
        """
        state = self.initial_state(len(x_BZLD)) if state is None else state
        valid_BZL = jnp.ones(x_BZLD.shape[:3], bool)
        # Directions in front, as LSTMs side by side stand.
        valid_ZBL, reset_ZBL, state_ZBU = jax.tree.map(
            lambda x: x.swapaxes(0, 1), (valid_BZL, reset_BZL, (state.h_BZD, state.c_BZU))
        )
        h_ZBLU, state_ZBU = scan_lstms(
            self._gates(x_BZLD), valid_ZBL, self.unroll, reset_ZBL=reset_ZBL, state=state_ZBU
        )
        h_BZLU, h_BZU, c_BZU = (x.swapaxes(0, 1) for x in (h_ZBLU, *state_ZBU))
        return h_BZLU.astype(self.dtype), State(h_BZU, c_BZU)

    def _gates(self, x_BZLD):
        return [lstm(x_BZLD[:, z]) for z, lstm in enumerate(self.shared)]
