"""ELMo's backbone: characters or words, and LSTMs that read them from either end.

Peters et al. 2018 (arXiv 1802.05365), equal in arithmetic to the released code (bilm-tf): the
two directions share the words' embedding and the softmax, and nothing else.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.layers import char_cnn, layer_stack, params
from modules.layers.dropout import Dropout
from modules.layers.rnn import Recurrent, State, flip_backward_direction
from modules.losses import cross_entropy


class Backbone(nn.Module):
    """Words to states of either direction.

    Attributes:
        V: words of the softmax, and of the embedding where there is one; 0: neither.
        D: width of a word, and of the states in each direction.
        U, N, Z: units of a cell, layers, directions (1: left to right alone).
        inputs: "characters" of each word, or "words": their ids.
        E, filters, highways, activation, W: of `char_cnn.CharCNN`; characters of a word.
        clip_cell, clip_projection: cells and states are held within this; 0: free.
        residual: from the second layer on, a layer adds its input to its output.
        tied: the softmax's rows are the words' embedding.
        dropout: of every layer's input, and of the last output where a softmax reads it.
        unroll: positions per step of the scan over positions.
    """

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
    tied: bool = False
    dropout: float = 0.1
    dtype: str = "float32"
    unroll: int = 1

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "inputs", ("characters", "words"))
        params.check_choice(self, "activation", char_cnn.ACTIVATIONS)
        params.check_choice(self, "dtype", params.DTYPES)
        if self.Z not in (1, 2):
            raise ValueError(f"Z={self.Z} directions: there are 1 or 2")
        if self.inputs == "words" and not self.V:
            raise ValueError("inputs='words' needs V, the number of words")
        if self.tied and self.inputs != "words":
            raise ValueError("tied=True needs the embedding of inputs='words'")

    def setup(self):
        if self.inputs == "words":
            init = params.initializer("uniform", 1.0)
            self.token_VD = params.param(
                self, "token_VD", init, (self.V, self.D), decay=True, depth=0
            )
        else:
            self.characters = self._characters()
            params.set_depths(self, characters=0)
        if self.V and not self.tied:
            init = params.normal(1 / math.sqrt(self.D))
            self.softmax_VD = params.param(self, "softmax_VD", init, (self.V, self.D), decay=True)
        if self.V:
            self.bias_V = params.param(self, "bias_V", params.zeros, (self.V,), decay=False)
        self.drop = Dropout(self.dropout)
        example = jnp.zeros((1, self.Z, 1, self.D), self.dtype)
        self.layers = layer_stack.init_layer_stack(self, "layers", self._layer(), self.N, example)

    def _characters(self, **place):
        return char_cnn.CharCNN(
            self.D, self.E, self.filters, self.highways, self.activation, self.dtype, **place
        )

    def _layer(self):
        return Recurrent(
            self.U,
            "lstm",
            self.D,
            self.Z,
            self.clip_cell,
            self.clip_projection,
            unroll=self.unroll,
            dtype=self.dtype,
            parent=None,
        )

    def example(self):
        """The smallest tokens that `encode` takes, to initialise with."""
        shape = (1, 1, self.W) if self.inputs == "characters" else (1, 1)
        return jnp.zeros(shape, jnp.int32)

    def fresh_state(self, B: int) -> State:
        """Returns the state of B rows before their first word: zeros, with a leading N."""
        one = self._layer().initial_state(B)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (self.N, *x.shape)), one)

    def encode(self, tokens, valid_BL, *, train: bool):
        """Characters [B, L, W] or ids [B, L] -> the last layer's states, directions side by side.

        The states of a row are the same however it is padded, and 0 at its padding.
        """
        return self._text(self.embed(tokens), valid_BL, None, train=train)[0][-1]

    def states(self, tokens, valid_BL, *, state: State | None = None):
        """Every layer's states, the words' own vectors (Z times) before them: [N + 1, B, L, ZD].

        With a `state`, from which to read on in either direction: (states, the state after).
        """
        return self.states_of(self.embed(tokens), valid_BL, state=state)

    def states_of(self, x_BLD, valid_BL, *, state: State | None = None):
        """`states` of words that are vectors already, as `embed` makes them."""
        all_BLD, new = self._text(x_BLD.astype(self.dtype), valid_BL, state, train=False)
        h_NBLD = jnp.stack(all_BLD)
        return h_NBLD if state is None else (h_NBLD, new)

    def _text(self, x_BLD, valid_BL, state, *, train: bool):
        """One text for all directions: the layers' states in its own order, and the state."""
        x_BLD = x_BLD * valid_BL[..., None].astype(self.dtype)
        x_BZLD, valid_BZL = (
            flip_backward_direction(jnp.stack([each] * self.Z, 1), 1) for each in (x_BLD, valid_BL)
        )
        all_BZLD, new = self._through(x_BZLD, state, valid_BZL=valid_BZL, train=train)
        aligned = (jnp.moveaxis(flip_backward_direction(h_BZLD, 1), 1, 2) for h_BZLD in all_BZLD)
        return [
            constrain_sharding(h_BLZD.reshape(*h_BLZD.shape[:2], -1), "BLD") for h_BLZD in aligned
        ], new

    def __call__(self, tokens_BZL, state: State | None = None, *, fresh_BZL=None, train: bool):
        """A text for each direction, in its order of reading, on from where `state` left off.

        Args:
            tokens_BZL: ids, or characters [B, Z, L, W].
            state: as `fresh_state`, or as returned for the batch before.
            fresh_BZL: bool: the state is cleared before this position is read.

        Returns:
            (h_BZLD, what the softmax reads; the state).
        """
        x_BZLD = self.embed(tokens_BZL)
        all_BZLD, state = self._through(x_BZLD, state, fresh_BZL=fresh_BZL, train=train)
        return self.drop(all_BZLD[-1], train=train), state

    def embed(self, tokens):
        """Words by themselves: characters [..., W] or ids [...] -> [..., D]."""
        if self.inputs == "characters":
            return self.characters(tokens)
        return params.reshard_embedding_rows(self.token_VD[tokens].astype(self.dtype), self.V)

    def _through(self, x_BZLD, state, *, valid_BZL=None, fresh_BZL=None, train: bool):
        """The input and what every layer makes of it: a list of N + 1, and the state."""
        state = self.fresh_state(len(x_BZLD)) if state is None else state
        layer, ones = self._layer(), (1,) * self.N
        outputs, states = [x_BZLD], []
        for n, weights in enumerate(layer_stack.split_layers(self.layers, ones)):
            own = jax.tree.map(lambda x, n=n: x[n], state)
            x_BZLD = self.drop(outputs[-1], train=train)
            weights = {"params": jax.tree.map(lambda w: w[0], weights)}
            y_BZLD, own = layer.apply(weights, x_BZLD, own, valid=valid_BZL, fresh=fresh_BZL)
            # What is added is the input as it was dropped out.
            outputs.append(y_BZLD + x_BZLD if n and self.residual else y_BZLD)
            states.append(own)
        return outputs, jax.tree.map(lambda *layers: jnp.stack(layers), *states)

    def softmax(self) -> tuple[Any, Any]:
        """(w_VD, bias_V), float32.  ValueError if there is none."""
        if not self.V:
            raise ValueError("V=0: this backbone has no softmax")
        return self.token_VD if self.tied else self.softmax_VD, self.bias_V

    def logits(self, h_BLD):
        """Scores of the words after states of one direction, [B, L, D]: [B, L, V] float32."""
        w_VD, bias_V = self.softmax()
        w_VD = w_VD.astype(h_BLD.dtype)
        logits = jnp.einsum("BLD,VD->BLV", h_BLD, w_VD, preferred_element_type=jnp.float32)
        return logits + bias_V

    def cross_entropy(self, h_BPD, targets_BP, weights_BP, *, chunks: int, train: bool = False):
        """`cross_entropy.softmax_cross_entropy` of the full softmax: the same without the
        logits."""
        del train  # what a softmax reads, `__call__` has dropped out
        return cross_entropy.softmax_cross_entropy(
            h_BPD, *self.softmax(), targets_BP, weights_BP, chunks=chunks
        )

    def flops(self, B: int, L: int, candidates: int) -> float:
        """Floating-point operations of a training step on [B, Z, L], each word of so many.

        Products only, a multiply-add as two, backward as twice forward.
        """
        cell = 2 * 2 * self.D * 4 * self.U + 2 * self.U * self.D
        word = self._characters(parent=None).flops(self.W) if self.inputs == "characters" else 0
        return 3.0 * B * self.Z * L * (word + self.N * cell + 2 * self.D * candidates)
