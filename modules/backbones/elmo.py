"""ELMo's backbone: characters or words, and LSTMs that read them from either end.

Peters et al. 2018 (arXiv 1802.05365), equal in arithmetic to the released code (bilm-tf): the
two directions share the words' embedding and the head's softmax, and nothing else.
"""

from typing import ClassVar

import jax.numpy as jnp
from flax import linen as nn

from modules.backbones import Edit, Output, refuse_arguments
from modules.layers import char_cnn, params, word_inputs
from modules.layers.lstm_stack import LSTMStack
from modules.layers.recurrent_masks import (
    group_starts,
    refuse_mask,
    separate_starts,
    valid_positions,
)
from modules.layers.rnn import State
from modules.masks import Mask, at
from modules.plugins import shared_fields


class Backbone(nn.Module):
    """Maps words to states of either direction.

    Attributes:
        V: vocabulary, of the embedding where there is one and of a head; 0: none.
        D: width of a word, and of the states in each direction.
        U, N, Z: units of a cell, layers, directions (1: left to right alone).
        inputs: "characters" of each word, or "words": their ids.
        E, filters, highways, activation: of `char_cnn.CharCNN`.
        W: characters of a word that are read.
        clip_cell, clip_projection: limits of cells and of states; 0: none.
        residual: from the second layer on, a layer adds its input to its output.
        dropout: of every layer's input, and of the last output where a softmax reads it.
        dtype: of products; parameters are float32.
        unroll: positions per step of the scan over positions.
    """

    FREE_FIELDS: ClassVar[frozenset[str]] = frozenset({"dropout", "dtype"})
    is_recurrent: ClassVar[bool] = True

    V: int = 0
    D: int = 512
    U: int = 4096
    N: int = 2
    Z: int = 2
    inputs: str = "characters"
    E: int = 16
    filters: tuple[tuple[int, int], ...] = char_cnn.ELMO
    highways: int = 2
    activation: str = "relu"
    W: int = 50
    clip_cell: float = 3.0
    clip_projection: float = 3.0
    residual: bool = True
    dropout: float = 0.1
    dtype: str = "float32"
    unroll: int = 1

    def __post_init__(self):
        super().__post_init__()
        known = dict(inputs=word_inputs.KINDS, activation=char_cnn.ACTIVATIONS, dtype=params.DTYPES)
        params.check_choices(self, **known)
        if self.Z not in (1, 2):
            raise ValueError(f"Z={self.Z} directions: there are 1 or 2")
        if self.inputs == "words" and not self.V:
            raise ValueError("inputs='words' needs V, the number of words")

    def setup(self):
        # Parts share the backbone's scope: their parameters stand among its own.
        self.words = self._words()
        nn.share_scope(self, self.words)
        self.words.table()  # read here, so that it is drawn first
        self.stack = self._stack()
        nn.share_scope(self, self.stack)

    def _words(self, **place) -> word_inputs.WordInputs:
        return word_inputs.WordInputs(**shared_fields(self, word_inputs.WordInputs), **place)

    def _stack(self, **place) -> LSTMStack:
        return LSTMStack(**shared_fields(self, LSTMStack), **place)

    @property
    def has_separate_directions(self) -> bool:
        """Reads a text for each direction, whose states share nothing but the words' vectors."""
        return True

    @property
    def is_causal(self) -> bool:
        return self.Z == 1

    @property
    def width(self) -> int:
        return self.Z * self.D

    def __call__(
        self,
        tokens,
        *,
        mask: Mask,
        segments_BL=None,
        positions_BL=None,
        slots_BP=None,
        memory: State | None = None,
        edit: Edit | None = None,
        train: bool,
    ) -> Output:
        """Computes the last layer's states, see `modules.backbones.Backbone`.

        A text is read in all directions, whose states lie side by side, [B, L, ZD], 0 at padding.
        A text for each direction, in its order of reading (ids [B, Z, L], characters [B, Z, L, W]),
        is read under a causal mask with groups [B, Z, L], which clear the states: [B, Z, L, D].
        """
        refuse_arguments("an LSTM", segments_BL=segments_BL, positions_BL=positions_BL)
        x = self.embed(tokens)
        if x.ndim == 3:
            x = x if edit is None else edit(x)
            all_BLD, memory = self._read_text(x, mask, memory, train=train)
            return Output(at(all_BLD[-1], slots_BP), memory)
        refuse_arguments("a reader of a text for each direction", edit=edit)
        starts_BZL = separate_starts(mask)
        all_BZLD, memory = self.stack(x, memory, None, starts_BZL, train=train)
        # Dropped out before a softmax reads it, and not where a task does.
        return Output(self.stack.drop(all_BZLD[-1], train=train), memory)

    def refusal(self, mask: Mask) -> str:
        return refuse_mask(mask, self.Z)

    def layer_states(self, tokens, *, mask: Mask, segments_BL=None, memory=None) -> Output:
        """Computes every layer's states, the words' vectors Z times first: [N + 1, B, L, ZD].

        Tokens are ids, characters, or vectors [B, L, D] as `embed` makes them.
        """
        refuse_arguments("an LSTM", segments_BL=segments_BL)
        is_embedded = jnp.issubdtype(tokens.dtype, jnp.floating)
        x_BLD = tokens.astype(self.dtype) if is_embedded else self.embed(tokens)
        all_BLD, memory = self._read_text(x_BLD, mask, memory, train=False)
        return Output(jnp.stack(all_BLD), memory)

    def initial_memory(self, B: int) -> State:
        """Returns the state of B rows before their first word: zeros, with a leading N."""
        return self._stack(parent=None).initial_state(B)

    def example(self):
        return self._words(parent=None).example()

    def embed(self, tokens):
        """Embeds words by themselves: characters [..., W] or ids [...] -> [..., D]."""
        return self.words(tokens)

    def _read_text(self, x_BLD, mask: Mask, memory, *, train: bool):
        """Reads one text in all directions: the layers' states in its own order, and the memory."""
        if reason := self.refusal(mask):
            raise ValueError(reason)
        starts_BL = group_starts(mask.groups_BL)
        if starts_BL is not None and self.Z == 2:
            # Backwards a document ends where it begins: a reset there would come a word too early.
            raise ValueError("documents in one row are read in one direction: set model.Z=1")
        valid_BL = valid_positions(mask, *x_BLD.shape[:2])
        return self.stack.read_text(x_BLD, memory, valid_BL, starts_BL, train=train)

    def table(self):
        """Returns the words' embedding, [V, D]; None of a backbone that reads characters."""
        return self.words.table()

    def flops(self, B: int, L: int, P: int) -> float:
        """Counts the operations of a training step on [B, Z, L]."""
        del P  # every state is computed, whether or not it is read
        word = self._words(parent=None).flops() + self._stack(parent=None).flops()
        # Each direction reads a text of its own, so its words are embedded, too.
        return 3.0 * B * self.Z * L * word
