"""Computes words' vectors from their characters by a small network of a task's own.

Lample et al. 2016 (arXiv 1603.01360): an RNN in both directions; Ma & Hovy 2016 (arXiv 1603.01354):
convolutions.  Peters et al. 2017 (arXiv 1705.00108) use both.
"""

import math

import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params
from modules.layers.char_cnn import ACTIVATIONS, C
from modules.layers.dropout import Dropout
from modules.layers.rnn import Recurrent

PAD = C - 1


class CharWords(nn.Module):
    """Computes a word's vector from its own characters; padding has no influence.

    Attributes:
        E: width of a character.
        cell: of an RNN whose last states in both directions are the vector; "": convolutions.
        U: units of the RNN in each direction.
        filters: (characters wide, number of filters) of each width.
        activation: "relu" or "tanh", of the filters.
        dropout: of the characters' vectors.
    """

    E: int = 25
    cell: str = ""
    U: int = 0
    filters: tuple[tuple[int, int], ...] = ()
    activation: str = "tanh"
    dropout: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        if bool(self.cell) == bool(self.filters) or bool(self.cell) != bool(self.U):
            raise ValueError(
                f"cell={self.cell!r}, U={self.U}, filters={self.filters}: characters are read "
                "either by a cell of U units or by filters"
            )
        params.check_choice(self, "activation", ACTIVATIONS)

    @nn.compact
    def __call__(self, chars_BLW, *, train: bool):
        """Maps characters [B, L, W], ids as in `CharCNN`, to vectors [B, L, D] in float32."""
        # Ma & Hovy's bound (section 3.1), which gives a character's numbers a variance of 1 / E.
        init = params.initializer("uniform", math.sqrt(3 / self.E))
        table_CE = params.param(self, "character_E", init, (C, self.E), decay=True, is_table=True)
        B, L, W = chars_BLW.shape
        chars_BW = chars_BLW.reshape(B * L, W)
        x_BWE = Dropout(self.dropout)(table_CE[chars_BW], train=train)
        read = self._read if self.cell else self._convolve
        return read(x_BWE, chars_BW != PAD).reshape(B, L, -1)

    def _read(self, x_BWE, valid_BW):
        _, state = Recurrent(self.U, self.cell, Z=2, name=self.cell)(x_BWE, valid=valid_BW)
        return state.h_BZD.reshape(len(x_BWE), -1)

    def _convolve(self, x_BWE, valid_BW):
        # ELMo's `char_cnn.CharCNN` convolves padding like any other character: this does not.
        x_BWE = jnp.where(valid_BW[..., None], x_BWE, 0)
        outputs = [self._filter(x_BWE, valid_BW, *pair) for pair in self.filters]
        y_BX = ACTIVATIONS[self.activation](jnp.concatenate(outputs, -1))
        # A position without a word, all of it padding, has zeros.
        return jnp.where(valid_BW.any(1, keepdims=True), y_BX, 0)

    def _filter(self, x_BWE, valid_BW, w: int, many: int):
        """Takes the maxima over windows of w characters around each of the word's own."""
        init = params.normal(1 / math.sqrt(w * self.E))
        kernel_wEX = params.param(self, f"kernel{w}_EX", init, (w, self.E, many), decay=True)
        bias_X = params.param(self, f"bias{w}_X", params.zeros, (many,), decay=False)
        W = x_BWE.shape[1]
        # Zeros on both sides, so that a word shorter than the filter has windows, too.
        x_BWE = jnp.pad(x_BWE, ((0, 0), ((w - 1) // 2, w // 2), (0, 0)))
        # Products, one for each place of the filter: on CPUs far faster than a convolution.
        y_BWX = sum(x_BWE[:, i : i + W] @ kernel_wEX[i] for i in range(w))
        # The lowest number and not -inf: a word of padding alone gives it, before `where` makes
        # that 0.
        lowest = jnp.finfo(y_BWX.dtype).min
        return jnp.where(valid_BW[..., None], y_BWX, lowest).max(1) + bias_X
