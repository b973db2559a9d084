"""Reads words by their vectors: what networks that are trained from labels have in common."""

from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn

from modules import plugins
from modules.backbones import Edit, Output, refuse_arguments
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.recurrent_masks import valid_positions
from modules.masks import Mask, at


class WordNetwork(nn.Module):
    """Maps words to vectors, and these to states; a subclass is a `modules.backbones.Backbone`.

    A subclass defines `read_layers`, `refusal`, `width`, `flops` and N.

    Attributes:
        KIND: the network, as errors name it.
        V, D: words, width of a word.
        dropout: of the words' vectors.
        init_scale: the vectors are drawn within this on both sides of 0.
        dtype: of products; parameters are float32.
    """

    KIND: ClassVar[str]
    FREE_FIELDS: ClassVar[frozenset[str]] = frozenset({"dropout", "init_scale", "dtype"})

    V: int
    D: int = 100
    dropout: float = 0.0
    init_scale: float = 0.1
    dtype: str = "float32"

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "dtype", params.DTYPES)

    def setup(self):
        self.token_VD = self.make_table("token_VD", decay=True)
        self.drop = Dropout(self.dropout)

    def make_table(self, name: str, *, decay: bool, D: int = 0):
        """Makes or reads vectors of all words, [V, D]; D=0: as wide as the model's words."""
        init = params.initializer("uniform", self.init_scale)
        shape = self.V, D or self.D
        return params.param(self, name, init, shape, decay=decay, is_table=True, depth=0)

    @property
    def is_causal(self) -> bool:
        return False  # a state has read what comes behind its word, too

    @property
    def width(self) -> int:
        raise NotImplementedError

    @property
    def layer_widths(self) -> tuple[int, ...]:
        """Width of each layer's states, where they differ in it."""
        return (self.width,)

    def read_layers(self, x_BLD, valid_BL, *, mask: Mask, memory: Any, train: bool):
        """Computes the states of every layer.

        Args:
            x_BLD: the words' vectors, 0 at padding.
            valid_BL: True where there is a word.
            memory: of an earlier call; None: there is none.

        Returns:
            ([h_BLD of every layer, 0 at padding], memory).
        """
        raise NotImplementedError

    def refusal(self, mask: Mask) -> str:
        raise NotImplementedError

    def __call__(
        self,
        tokens,
        *,
        mask: Mask,
        segments_BL=None,
        positions_BL=None,
        slots_BP=None,
        memory=None,
        edit: Edit | None = None,
        train: bool,
        **which: Any,
    ) -> Output:
        """Computes the last layer's states, see `modules.backbones.Backbone`; 0 at padding.

        Args:
            which: names the network that reads, of a subclass that has several.
        """
        del segments_BL  # words of all segments are read alike
        refuse_arguments(self.KIND, positions_BL=positions_BL)
        all_BLD, memory = self._read(tokens, mask, memory, edit, train=train, **which)
        return Output(at(all_BLD[-1], slots_BP), memory)

    def layer_states(self, tokens, *, mask: Mask, segments_BL=None, memory=None, **which) -> Output:
        """Computes every layer's states, the words' vectors before: [N + 1, B, L, D].

        Raises:
            plugins.FieldError: words and states are not equally wide.
        """
        del segments_BL
        if others := set(self.layer_widths) - {self.D}:
            width = max(others)
            raise plugins.FieldError(
                f"words are {self.D} wide and states {width}: all layers together are read of a "
                f"model with model.D={width}, of any other the top layer alone"
            )
        all_BLD, memory = self._read(tokens, mask, memory, train=False, **which)
        return Output(jnp.stack(all_BLD), memory)

    def initial_memory(self, B: int) -> Any:
        del B  # there is no memory

    def example(self):
        return jnp.zeros((1, 1), jnp.int32)

    def table(self):
        """Returns the words' vectors, [V, D]."""
        return self.token_VD

    def embed(self, tokens, valid, *, train: bool, **which: Any):
        """Embeds words [B, ..., L] for the first layer: [B, ..., L, D], 0 where none is valid."""
        x = params.reshard_embedding_rows(self.look_up(tokens, **which), self.V)
        # Marked for diagnostics, which differentiate by what the first layer reads.
        x = params.mark_inputs(self, x)
        # Padding is 0 whatever its row of the table says, which gets no gradient from it either.
        x = x * valid[..., None].astype(self.dtype)
        return self.drop_words(x, tokens, train=train)

    def look_up(self, tokens_BL):
        """Looks up the words' vectors, [B, L, D]."""
        return self.token_VD[tokens_BL].astype(self.dtype)

    def drop_words(self, x_BLD, tokens_BL, *, train: bool):
        """Drops out the words' vectors."""
        del tokens_BL
        return self.drop(x_BLD, train=train)

    def _read(self, tokens_BL, mask: Mask, memory, edit=None, *, train: bool, **which):
        # All layers together, the words' vectors first: a call wants the last, `layer_states` all.
        if reason := self.refusal(mask):
            raise ValueError(reason)
        if not self.is_causal:
            # A network that reads from a text's end has no state for the text that follows it.
            refuse_arguments("a network that reads what comes", memory=memory)
        valid_BL = valid_positions(mask, *tokens_BL.shape)
        x_BLD = self.embed(tokens_BL, valid_BL, train=train, **which)
        if edit is not None:  # of words alone: what pads a row is 0, whatever reads it
            x_BLD = edit(x_BLD) * valid_BL[..., None].astype(x_BLD.dtype)
        states, memory = self.read_layers(
            x_BLD, valid_BL, mask=mask, memory=memory, train=train, **which
        )
        return [x_BLD, *states], memory
