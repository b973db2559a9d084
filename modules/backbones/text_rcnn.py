"""Recurrent convolutional network: each word between the contexts on its left and right.

Lai, Xu, Liu & Zhao 2015 (Recurrent Convolutional Neural Networks for Text Classification, AAAI).
"""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from modules import plugins
from modules.activation_sharding import constrain_sharding
from modules.backbones import Output, refuse_arguments
from modules.kernels.dense import dense
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.recurrent_masks import valid_positions
from modules.layers.rnn import Recurrent, State
from modules.masks import Mask, at

glorot = nn.initializers.glorot_uniform()


class Backbone(nn.Module):
    """Words to states tanh(W [c_l; e; c_r] + b).

    The context on the left of a word, c_l, is made of the words before it and not of the word
    itself, as in the paper and unlike in most other codes; so is the one on its right.

    Attributes:
        V, D: words, width of a word.
        U: width of a context.
        F: width of a state.
        cell: "rnn", as in the paper (without a bias); "gru" or "lstm".
        dropout: of the words' vectors.
        init_scale: the vectors are drawn within this on both sides of 0.
        unroll: positions per step of the scan over positions.
    """

    N: ClassVar[int] = 1

    V: int
    D: int = 50
    U: int = 50
    F: int = 100
    cell: str = "rnn"
    dropout: float = 0.0
    init_scale: float = 0.1
    dtype: str = "float32"
    unroll: int = 1

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "dtype", params.DTYPES)

    def setup(self):
        init, D = params.initializer("uniform", self.init_scale), self.D + 2 * self.U
        self.token_VD = params.param(self, "token_VD", init, (self.V, self.D), decay=True, depth=0)
        # The contexts of the first and of the last word, shared by all texts.
        self.end_ZU = params.param(
            self, "end_ZU", params.initializer("uniform", 0.1), (2, self.U), decay=False, depth=1
        )
        self.contexts = Recurrent(
            self.U, self.cell, Z=2, bias=self.cell != "rnn", unroll=self.unroll, dtype=self.dtype
        )
        params.set_depths(self, contexts=1)
        self.w_DF = params.param(
            self, "w_DF", glorot, (D, self.F), decay=True, depth=1, dtype=self.dtype
        )
        self.bias_F = params.param(
            self, "bias_F", params.zeros, (self.F,), decay=False, depth=1, dtype=self.dtype
        )
        self.drop = Dropout(self.dropout)

    @property
    def is_causal(self) -> bool:
        """Returns False: a state has read both sides."""
        return False

    @property
    def width(self) -> int:
        """Width of a state."""
        return self.F

    def __call__(
        self,
        tokens,
        *,
        mask: Mask,
        segments_BL=None,
        positions_BL=None,
        slots_BP=None,
        memory=None,
        train: bool,
    ) -> Output:
        """Computes states [B, L, F], see `modules.backbones.Backbone`.

        Rows are padded at their ends alone; there states are 0.
        """
        del segments_BL  # words of all segments are read alike
        refuse_arguments("an RCNN", positions_BL=positions_BL, memory=memory)
        if reason := self.refusal(mask):
            raise ValueError(reason)
        valid_BL = valid_positions(mask, *tokens.shape)
        e_BLD = self._embed(tokens, valid_BL, train=train)
        left_BLU, right_BLU = self._read_contexts(e_BLD, valid_BL)
        x_BLD = jnp.concatenate([left_BLU, e_BLD, right_BLU], -1)
        h_BLF = jnp.tanh(dense(x_BLD, self.w_DF) + self.bias_F)
        h_BLF = constrain_sharding(jnp.where(valid_BL[..., None], h_BLF, 0), "BLF")
        return Output(at(h_BLF, slots_BP))

    def refusal(self, mask: Mask) -> str:
        """Says why a mask cannot be honoured; "" if it can."""
        if mask.is_causal:
            return "an RCNN's second context has read what comes: it takes no causal mask"
        if others := set(mask.fields()) - {"lengths_B", "valid_BL"}:
            names = ", ".join(sorted(others))
            return f"an RCNN has read all the other words: it takes lengths, not {names}"
        return ""

    def layer_states(self, tokens, *, mask: Mask, segments_BL=None, memory=None) -> Output:
        """Computes the words' vectors and the states: [2, B, L, D].

        Raises:
            plugins.FieldError: words and states are not equally wide.
        """
        if self.D != self.F:
            raise plugins.FieldError(
                f"words are {self.D} wide and states {self.F}: both together are read of a model "
                f"with model.F={self.D}"
            )
        e_BLD = self._embed(tokens, valid_positions(mask, *tokens.shape), train=False)
        given = dict(mask=mask, segments_BL=segments_BL, memory=memory)
        return Output(jnp.stack([e_BLD, self(tokens, **given, train=False).h]))

    def initial_memory(self, B: int) -> None:
        """Returns None: there is no memory."""
        del B

    def example(self):
        """Returns the smallest tokens, to make the parameters with."""
        return jnp.zeros((1, 1), jnp.int32)

    def table(self):
        """Returns the words' vectors, [V, D]."""
        return self.token_VD

    def flops(self, B: int, L: int, P: int) -> float:
        """Counts the operations of a training step on [B, L]."""
        del P  # every state is computed, whether or not it is read
        G = {"rnn": 1, "gru": 3, "lstm": 4}[self.cell]
        contexts = 2 * G * self.U * (self.D + self.U)
        return 6.0 * B * L * (contexts + (self.D + 2 * self.U) * self.F)

    def _embed(self, tokens_BL, valid_BL, *, train: bool):
        e_BLD = params.reshard_embedding_rows(self.token_VD[tokens_BL].astype(self.dtype), self.V)
        e_BLD = params.mark_inputs(self, e_BLD)
        return self.drop(e_BLD * valid_BL[..., None].astype(self.dtype), train=train)

    def _read_contexts(self, e_BLD, valid_BL):
        """Returns c_l and c_r of every word, [B, L, U] each: the state before the word is read."""
        B, end_ZU = len(e_BLD), self.end_ZU.astype(self.dtype)
        state = self.contexts.initial_state(B)
        begin_BZU = jnp.broadcast_to(self.end_ZU, state.h_BZD.shape).astype(state.h_BZD.dtype)
        y_BLZU, _ = self.contexts(e_BLD, State(begin_BZU, state.c_BZU), valid=valid_BL)
        contexts = []
        for z, step in enumerate((1, -1)):  # where the word before stands, in the order of reading
            near_BLU = jnp.roll(y_BLZU[:, :, z], step, 1)
            is_first_BL = ~jnp.roll(valid_BL, step, 1).at[:, 0 if step > 0 else -1].set(False)
            contexts.append(jnp.where(is_first_BL[..., None], end_ZU[z], near_BLU))
        return contexts
