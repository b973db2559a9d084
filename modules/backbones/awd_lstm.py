"""The AWD-LSTM: LSTMs left to right, whose regularizers are dropouts of weights and of rows.

Merity, Keskar & Socher 2017 (arXiv 1708.02182), equal in arithmetic to the released code
(salesforce/awd-lstm-lm).  Its output dropout and its penalties of the states belong to the
objective (`pretrain.objectives.clm`), its average of the weights to the training.
"""

import itertools
from typing import Any, ClassVar

import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding
from modules.backbones.word_network import WordNetwork
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.recurrent_masks import group_starts, refuse_mask
from modules.layers.rnn import Recurrent, State
from modules.masks import Mask
from modules.plugins import FieldError


class Backbone(WordNetwork):
    """Words to states; the last layer is as wide as a word, so that a softmax can be tied to it.

    Attributes:
        dropout: 0, as the others below are in its place.
        U, N: units of all layers but the last, layers.
        dropoute: share of the vocabulary whose vectors are dropped, wherever the word stands.
        dropouti, dropouth: of the words' vectors and between layers, the same at all positions of
            a row (locked dropout).
        wdrop: share of each layer's state-to-state weights that is dropped, see `Recurrent`.
        unroll: positions per step of the scan over positions.
        pieces: into which a text is cut: while a layer reads the second, the next layer reads the
            first, on a CPU of several cores.
    """

    KIND: ClassVar[str] = "an AWD-LSTM"
    is_recurrent: ClassVar[bool] = True
    FREE_FIELDS: ClassVar[frozenset[str]] = WordNetwork.FREE_FIELDS | {
        "dropoute",
        "dropouti",
        "dropouth",
        "wdrop",
    }

    D: int = 400
    U: int = 1150
    N: int = 3
    dropoute: float = 0.1
    dropouti: float = 0.65
    dropouth: float = 0.3
    wdrop: float = 0.5
    unroll: int = 1
    pieces: int = 1

    def __post_init__(self):
        super().__post_init__()
        if self.dropout:
            raise FieldError(
                f"dropout={self.dropout}: an AWD-LSTM has dropoute, dropouti, dropouth and wdrop, "
                "and its objective the dropout of the last output"
            )

    def setup(self):
        super().setup()
        self.layer = [self._layer(width) for width in self.layer_widths]
        params.set_depths(self, **{f"layer_{n}": n + 1 for n in range(self.N)})
        self.drop_rows = Dropout(self.dropoute)
        self.drop_input = Dropout(self.dropouti, shared=(1,))
        self.drop_hidden = Dropout(self.dropouth, shared=(1,))

    def _layer(self, width: int, **place) -> Recurrent:
        return Recurrent(
            width,
            # Both as PyTorch's LSTM, which the released code trains: nothing is added to the forget
            # gate.
            forget_bias=0.0,
            initializer="torch",
            wdrop=self.wdrop,
            unroll=self.unroll,
            dtype=self.dtype,
            **place,
        )

    @property
    def is_causal(self) -> bool:
        return True

    @property
    def width(self) -> int:
        return self.D

    @property
    def layer_widths(self) -> tuple[int, ...]:
        return (*[self.U] * (self.N - 1), self.D)

    def refusal(self, mask: Mask) -> str:
        return refuse_mask(mask, 1)

    def initial_memory(self, B: int) -> tuple[State, ...]:
        """Returns the state of B rows before their first word: zeros, for each layer."""
        return tuple(
            self._layer(width, parent=None).initial_state(B) for width in self.layer_widths
        )

    def flops(self, B: int, L: int, P: int) -> float:
        del P  # every state is computed, whether or not it is read
        widths = itertools.pairwise((self.D, *self.layer_widths))
        return 6.0 * B * L * sum(4 * out * (into + out) for into, out in widths)

    def drop_words(self, x_BLD, tokens_BL, *, train: bool):
        """Drops words of the vocabulary, and then entries of all vectors of a row."""
        # One draw for a word's vector at all its places, and the kept ones scaled as dropout
        # scales.
        keep_V = self.drop_rows(jnp.ones(self.V, x_BLD.dtype), train=train)
        if train:
            x_BLD = x_BLD * keep_V[tokens_BL][..., None]
        return self.drop_input(x_BLD, train=train)

    def read_layers(self, x_BLD, valid_BL, *, mask: Mask, memory, train: bool):
        """Computes every layer's states [B, L, U] or [B, L, D], and the memory."""
        starts_BL = group_starts(mask.groups_BL)
        pieces, valid = (
            self._split_positions(x_BLD),
            self._split_positions(valid_BL[:, None], axis=2),
        )
        reset = [None] * len(pieces)
        if starts_BL is not None:
            reset = self._split_positions(starts_BL[:, None], axis=2)
        outputs: list[Any] = []
        states = []
        memory = memory or self.initial_memory(len(x_BLD))
        for n, (layer, state) in enumerate(zip(self.layer, memory, strict=True)):
            if n:
                # Between layers alone: the last output is dropped out by the objective, which
                # penalizes it, too.
                keep_BLD = self.drop_hidden(jnp.ones_like(pieces[0][:, :1]), train=train)
                pieces = [keep_BLD * x_BLD for x_BLD in pieces]
            x = [x_BLD[:, None] for x_BLD in pieces]
            h, state = layer(x, state, valid=valid, reset=reset, train=train)
            pieces = [h_BZLU[:, 0] for h_BZLU in h]
            outputs.append(constrain_sharding(jnp.concatenate(pieces, 1), "BLD"))
            states.append(state)
        return outputs, tuple(states)

    def _split_positions(self, x_BL, axis: int = 1):
        pieces = self.pieces if x_BL.shape[axis] >= self.pieces else 1
        return jnp.array_split(x_BL, pieces, axis)
