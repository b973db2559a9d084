"""Recurrent convolutional network: each word between the contexts on its left and right.

Lai, Xu, Liu & Zhao 2015 (Recurrent Convolutional Neural Networks for Text Classification, AAAI).
"""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.backbones.word_network import WordNetwork
from modules.kernels.dense import dense
from modules.kernels.recurrent_cells import CELLS
from modules.layers import params
from modules.layers.recurrent_masks import refuse_all_but_lengths
from modules.layers.rnn import Recurrent, State
from modules.masks import Mask

glorot = nn.initializers.glorot_uniform()


class Backbone(WordNetwork):
    """Words to states tanh(W [c_l; e; c_r] + b).

    Attributes:
        V, D, dropout, init_scale: see `WordNetwork`.
        U: width of a context.
        F: width of a state.
        cell: "rnn", as in the paper (without a bias); "gru" or "lstm".
        unroll: positions per step of the scan over positions.
    """

    KIND: ClassVar[str] = "an RCNN"
    N: ClassVar[int] = 1

    D: int = 50
    U: int = 50
    F: int = 100
    cell: str = "rnn"
    unroll: int = 1

    def setup(self):
        super().setup()
        # The contexts of the first and of the last word, shared by all texts.
        self.end_ZU = params.param(
            self, "end_ZU", params.initializer("uniform", 0.1), (2, self.U), decay=False, depth=1
        )
        self.contexts = Recurrent(
            self.U, self.cell, Z=2, bias=self.cell != "rnn", unroll=self.unroll, dtype=self.dtype
        )
        params.set_depths(self, contexts=1)
        D = self.D + 2 * self.U
        self.w_DF = params.param(
            self, "w_DF", glorot, (D, self.F), decay=True, depth=1, dtype=self.dtype
        )
        self.bias_F = params.param(
            self, "bias_F", params.zeros, (self.F,), decay=False, depth=1, dtype=self.dtype
        )

    @property
    def width(self) -> int:
        return self.F

    def refusal(self, mask: Mask) -> str:
        return refuse_all_but_lengths(mask, "an RCNN has read")

    def flops(self, B: int, L: int, P: int) -> float:
        del P  # every state is computed, whether or not it is read
        contexts = 2 * CELLS[self.cell].G * self.U * (self.D + self.U)
        return 6.0 * B * L * (contexts + (self.D + 2 * self.U) * self.F)

    def read_layers(self, x_BLD, valid_BL, *, mask: Mask, memory: None, train: bool):
        """Computes [the states [B, L, F]], and None; no padding is between words."""
        del mask, memory, train
        left_BLU, right_BLU = self._read_contexts(x_BLD, valid_BL)
        x_BLD = jnp.concatenate([left_BLU, x_BLD, right_BLU], -1)
        h_BLF = jnp.tanh(dense(x_BLD, self.w_DF) + self.bias_F)
        return [constrain_sharding(jnp.where(valid_BL[..., None], h_BLF, 0), "BLF")], None

    def _read_contexts(self, e_BLD, valid_BL):
        """Returns c_l and c_r of every word, [B, L, U] each: the state before the word is read."""
        B, end_ZU = len(e_BLD), self.end_ZU.astype(self.dtype)
        state = self.contexts.initial_state(B)
        begin_BZU = jnp.broadcast_to(self.end_ZU, state.h_BZD.shape).astype(state.h_BZD.dtype)
        # The learned vector is the context at a text's end; an LSTM's cell begins at zero there.
        y_BLZU, _ = self.contexts(e_BLD, State(begin_BZU, state.c_BZU), valid=valid_BL)
        contexts = []
        for z, step in enumerate((1, -1)):  # where the word before stands, in the order of reading
            # The context on the left of a word is made of the words before it and not of the word
            # itself, as in the paper and unlike in most other codes; so is the one on its right.
            near_BLU = jnp.roll(y_BLZU[:, :, z], step, 1)
            # Behind padding or the row's edge no word is before: its context is the learned one.
            is_first_BL = ~jnp.roll(valid_BL, step, 1).at[:, 0 if step > 0 else -1].set(False)
            contexts.append(jnp.where(is_first_BL[..., None], end_ZU[z], near_BLU))
        return contexts
