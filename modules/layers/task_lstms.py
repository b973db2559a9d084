"""LSTMs that several tasks share (Liu, Qiu & Huang 2016, arXiv 1605.05101): its three models."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params
from modules.layers.peephole_bilstm import PeepholeBiLSTM
from modules.layers.peephole_lstm import Gates, PeepholeLSTM, scan_lstms


class TaskLSTMs(nn.Module):
    """Reads the texts of tasks; a subclass defines `__call__` and `products`.

    Attributes:
        tasks: their names.
        U, scale, dtype: see `PeepholeLSTM`.
        unroll: positions per step of the scan over positions.
    """

    tasks: tuple[str, ...]
    U: int
    scale: float
    dtype: str
    unroll: int

    def __call__(self, x_BLD, valid_BL, reset_BL, task: str):
        """Computes the states of a task's LSTM, [B, L, U].

        Args:
            reset_BL: True: the states are cleared before this word; None: nowhere.
        """
        raise NotImplementedError

    def products(self, D: int) -> int:
        """Counts the multiply-adds of a unit for a word of D numbers."""
        raise NotImplementedError

    def make_lstm(self, inputs: int, states: int) -> PeepholeLSTM:
        return PeepholeLSTM(self.U, inputs, states, self.scale, self.dtype)

    def scan(self, lstms: Sequence[Gates], valid_BL, reset_BL):
        """Runs LSTMs side by side on one text: h_ZBLU."""
        valid_ZBL, reset_ZBL = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (len(lstms), *x.shape)), (valid_BL, reset_BL)
        )
        return scan_lstms(lstms, valid_ZBL, self.unroll, reset_ZBL=reset_ZBL)[0]


class Uniform(TaskLSTMs):
    """Model I: one LSTM, which knows a task by its words' vectors."""

    def setup(self):
        self.rnn = self.make_lstm(4, 4)

    def __call__(self, x_BLD, valid_BL, reset_BL, task: str):
        return self.scan([self.rnn(x_BLD)], valid_BL, reset_BL)[0]

    def products(self, D: int) -> int:
        return 4 * (D + self.U)


class Coupled(TaskLSTMs):
    """Model II: an LSTM for each task, whose candidates are mixed of all their states."""

    def setup(self):
        # All tasks' parameters at once, whichever task is read first.
        self.rnns = {task: self.make_lstm(5, 4 + len(self.tasks)) for task in self.tasks}

    def __call__(self, x_BLD, valid_BL, reset_BL, task: str):
        # Every task's LSTM reads the text, as each goes into the others' candidates.
        lstms = [self.rnns[name](x_BLD) for name in self.tasks]
        return self.scan(lstms, valid_BL, reset_BL)[self.tasks.index(task)]

    def products(self, D: int) -> int:
        T = len(self.tasks)
        return T * (5 * D + (4 + T) * self.U)


class Shared(TaskLSTMs):
    """Model III: an LSTM for each task, which reads the states of a biLSTM of all, too.

    Without tasks its states are the biLSTM's, [B, L, 2 U].
    """

    def setup(self):
        self.bilstm = PeepholeBiLSTM(self.U, self.scale, self.dtype, self.unroll)
        nn.share_scope(self, self.bilstm)
        # A sixth product of the word is in the gate of the shared states.
        self.rnns = {task: self.make_lstm(6, 5) for task in self.tasks}
        init, shape = params.initializer("uniform", self.scale), (2 * self.U, 2, self.U)
        names = {task: f"joint_{task}_DGU" for task in self.tasks}
        self.joints = {
            task: params.param(self, name, init, shape, decay=True, depth=2)
            for task, name in names.items()
        }
        rnns = {task: f"rnns_{task}" for task in self.tasks}
        params.set_tasks(self, **{x: task for by in (rnns, names) for task, x in by.items()})
        params.set_depths(self, **dict.fromkeys(rnns.values(), 2))

    def __call__(self, x_BLD, valid_BL, reset_BL, task: str):
        if self.is_initializing():  # all of them, whichever is read first
            jax.tree.map(lambda lstm: lstm(x_BLD), dict(self.rnns))
        s_BLD = self.bilstm(x_BLD, valid_BL)
        if not self.tasks:
            return s_BLD
        gates, joint_DGU = self.rnns[task](x_BLD), self.joints[task].astype(self.dtype)
        a_BLGU = gates.a_BLGU
        # The shared states are all known before: one product serves all positions.
        r_BLGU = jnp.einsum("BLD,DGU->BLGU", s_BLD, joint_DGU, preferred_element_type=a_BLGU.dtype)
        share_BLU = jax.nn.sigmoid(a_BLGU[:, :, 5] + r_BLGU[:, :, 1]) * r_BLGU[:, :, 0]
        a_BLGU = a_BLGU.at[:, :, 3].add(share_BLU)[:, :, :5]
        return self.scan([gates._replace(a_BLGU=a_BLGU)], valid_BL, reset_BL)[0]

    def products(self, D: int) -> int:
        both = 8 * (D + self.U)
        return both + (6 * D + 5 * self.U + 4 * self.U if self.tasks else 0)
