"""Vectors of words by themselves: from their characters, or of a table."""

import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params
from modules.layers.char_cnn import CharCNN
from modules.plugins import shared_fields

KINDS = ("characters", "words")


class WordInputs(nn.Module):
    """Embeds words; what they stand among is read by the layers above.

    Attributes:
        V, D: words of the table, width of a word.
        inputs: of `KINDS`, what a word is given as.
        E, filters, highways, activation, W: of `CharCNN`; characters of a word.
    """

    V: int
    D: int
    inputs: str
    E: int
    filters: tuple[tuple[int, int], ...]
    highways: int
    activation: str
    W: int
    dtype: str

    def setup(self):
        if self.inputs == "words":
            init = params.initializer("uniform", 1.0)
            self.token_VD = params.param(
                self, "token_VD", init, (self.V, self.D), decay=True, is_table=True, depth=0
            )
        else:
            self.characters = self._characters()
            # Below all layers, as a table of words is.
            params.set_depths(self, characters=0)

    def __call__(self, tokens):
        """Embeds characters [..., W] or ids [...]: [..., D]."""
        if self.inputs == "characters":
            return params.mark_inputs(self, self.characters(tokens))
        return params.embed_tokens(self, self.token_VD, tokens, self.dtype)

    def table(self):
        """Returns the words' vectors, [V, D]; None where they are made of characters."""
        return self.token_VD if self.inputs == "words" else None

    def example(self):
        return jnp.zeros((1, 1, self.W) if self.inputs == "characters" else (1, 1), jnp.int32)

    def flops(self) -> float:
        """Counts the FLOPs of the products of one word, forwards."""
        # A look-up has no products.
        return self._characters(parent=None).flops(self.W) if self.inputs == "characters" else 0.0

    def _characters(self, **place) -> CharCNN:
        return CharCNN(**shared_fields(self, CharCNN), **place)
