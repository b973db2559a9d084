"""Recurrent networks over words: RNN, GRU and LSTM, in one direction or in both.

Zhang & Wang 2015 (arXiv 1508.01006) add up the states of two RNNs; Zhang et al. 2015 (Y15-1009)
and Zhou et al. 2016 (P16-2034) those of two LSTMs.
"""

import functools
import operator
from collections.abc import Callable
from typing import ClassVar

import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding
from modules.backbones.word_network import WordNetwork
from modules.kernels.recurrent_cells import CELLS
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.recurrent_masks import group_starts, refuse_mask
from modules.layers.rnn import Recurrent, State, to_reading_order, to_text_order
from modules.masks import Mask

# [B, L, Z, U] to [B, L, D].
MERGES: dict[str, Callable] = {
    "sum": lambda h_BLZU: h_BLZU.sum(2),
    "mean": lambda h_BLZU: h_BLZU.mean(2),
    # Not prod, whose gradient divides by an entry that may be 0.
    "mul": lambda h_BLZU: functools.reduce(operator.mul, jnp.moveaxis(h_BLZU, 2, 0)),
    "concat": lambda h_BLZU: h_BLZU.reshape(*h_BLZU.shape[:2], -1),
}
SITES = ("output", "input")


class Backbone(WordNetwork):
    """Words to states; every layer reads the directions of the one beneath, merged.

    Attributes:
        V, D, dropout, init_scale: see `WordNetwork`.
        U, N, Z: units of a cell, layers, directions (1: left to right alone).
        cell, reset_gate, activation: of `Recurrent`.
        merge: of the directions' states: "sum", "mean", "mul" or "concat".
        rnn_dropout, rnn_dropout_at: of every layer's "output"; or of its "input", anew for each
            direction, as in a released Att-BLSTM (`DropoutWrapper(cell, 0.7)` names that one).
        unroll: positions per step of the scan over positions.
    """

    KIND: ClassVar[str] = "a recurrent network"
    is_recurrent: ClassVar[bool] = True
    FREE_FIELDS: ClassVar[frozenset[str]] = WordNetwork.FREE_FIELDS | {
        "rnn_dropout",
        "rnn_dropout_at",
    }

    U: int = 100
    N: int = 1
    Z: int = 2
    cell: str = "lstm"
    merge: str = "sum"
    reset_gate: str = "after"
    activation: str = "tanh"
    rnn_dropout: float = 0.0
    rnn_dropout_at: str = "output"
    unroll: int = 1

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "cell", CELLS)
        params.check_choice(self, "merge", MERGES)
        params.check_choice(self, "rnn_dropout_at", SITES)
        if self.Z not in (1, 2):
            raise ValueError(f"Z={self.Z} directions: there are 1 or 2")

    def setup(self):
        super().setup()
        self.layer = [
            Recurrent(
                self.U,
                self.cell,
                Z=self.Z,
                activation=self.activation,
                reset_gate=self.reset_gate,
                unroll=self.unroll,
                dtype=self.dtype,
            )
            for _ in range(self.N)
        ]
        params.set_depths(self, **{f"layer_{n}": n + 1 for n in range(self.N)})
        self.rnn_drop = Dropout(self.rnn_dropout)

    @property
    def is_causal(self) -> bool:
        return self.Z == 1

    @property
    def width(self) -> int:
        return self.Z * self.U if self.merge == "concat" else self.U

    def refusal(self, mask: Mask) -> str:
        if mask.groups_BL is not None and self.Z == 2:
            return "documents in one row are read in one direction: set model.Z=1"
        return refuse_mask(mask, self.Z)

    def initial_memory(self, B: int) -> tuple[State, ...] | None:
        """Returns the state of B rows before their first word: zeros; None with two directions."""
        if self.Z == 2:
            return None
        layer = Recurrent(self.U, self.cell, dtype=self.dtype, parent=None)
        return (layer.initial_state(B),) * self.N

    def flops(self, B: int, L: int, P: int) -> float:
        del P  # every state is computed, whether or not it is read
        # The first layer reads words, the others the merged states beneath them.
        inputs = self.D + (self.N - 1) * self.width
        return 6.0 * B * L * self.Z * CELLS[self.cell].G * self.U * (inputs + self.N * self.U)

    def read_layers(self, x_BLD, valid_BL, *, mask: Mask, memory, train: bool):
        """Computes every layer's states [B, L, D], and the memory; a group starts from zeros."""
        reset_BL = group_starts(mask.groups_BL)
        outputs, states = [x_BLD], []
        # Two directions begin anew with each text: they have no state to go on from.
        memory = memory or self.initial_memory(len(x_BLD)) or (None,) * self.N
        for layer, state in zip(self.layer, memory, strict=True):
            h_BLD, state = self._read_layer(layer, state, outputs[-1], valid_BL, reset_BL, train)
            outputs.append(h_BLD)
            states.append(state)
        return outputs[1:], tuple(states) if self.Z == 1 else None

    def _read_layer(self, layer, state, x_BLD, valid_BL, reset_BL, train: bool):
        """Reads a text in all directions: their merged states [B, L, D], and the memory."""
        is_at_input = self.rnn_dropout_at == "input"
        x_BZLD, valid_BZL = (to_reading_order(x, self.Z) for x in (x_BLD, valid_BL))
        if is_at_input:
            x_BZLD = self.rnn_drop(x_BZLD, train=train)
        reset_BZL = None if reset_BL is None else reset_BL[:, None]
        h_BZLU, state = layer(x_BZLD, state, valid=valid_BZL, reset=reset_BZL)
        h_BLZU = to_text_order(h_BZLU)
        h_BLD = constrain_sharding(MERGES[self.merge](h_BLZU), "BLD")
        return h_BLD if is_at_input else self.rnn_drop(h_BLD, train=train), state
