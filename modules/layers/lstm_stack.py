"""The LSTMs of ELMo, layer upon layer, in one direction or in both."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.activation_sharding import constrain_sharding
from modules.layers import layer_stack
from modules.layers.dropout import Dropout
from modules.layers.rnn import Recurrent, State, to_reading_order, to_text_order


class LSTMStack(nn.Module):
    """N layers of `rnn.Recurrent`, whose directions meet nowhere.

    Attributes: as `modules.backbones.elmo.Backbone`.
    """

    D: int
    U: int
    N: int
    Z: int
    clip_cell: float
    clip_projection: float
    residual: bool
    dropout: float
    dtype: str
    unroll: int

    def setup(self):
        self.drop = Dropout(self.dropout)
        example = jnp.zeros((1, self.Z, 1, self.D), self.dtype)
        self.layers = layer_stack.init_layer_stack(self, "layers", self._layer(), self.N, example)

    def initial_state(self, B: int) -> State:
        """Returns the state of B rows before their first word: zeros, with a leading N."""
        state = self._layer().initial_state(B)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (self.N, *x.shape)), state)

    def __call__(self, x_BZLD, state: State | None, valid_BZL, reset_BZL, *, train: bool):
        """Reads a text for each direction, in its order of reading.

        Args:
            valid_BZL, reset_BZL: as `Recurrent` takes them.

        Returns:
            (the input and the states of every layer, N + 1 of [B, Z, L, D]; the new state).
        """
        state = self.initial_state(len(x_BZLD)) if state is None else state
        layer, ones = self._layer(), (1,) * self.N
        outputs, states = [x_BZLD], []
        # No scan over layers: the scans over words within would be compiled no faster by it.
        for n, weights in enumerate(layer_stack.split_layers(self.layers, ones)):
            layer_state = jax.tree.map(lambda x, n=n: x[n], state)
            x_BZLD = self.drop(outputs[-1], train=train)
            weights = {"params": jax.tree.map(lambda w: w[0], weights)}
            y_BZLD, layer_state = layer.apply(
                weights, x_BZLD, layer_state, valid=valid_BZL, reset=reset_BZL
            )
            # The residual is the input after its dropout, as in bilm-tf's wrappers.
            outputs.append(y_BZLD + x_BZLD if n and self.residual else y_BZLD)
            states.append(layer_state)
        return outputs, jax.tree.map(lambda *layers: jnp.stack(layers), *states)

    def read_text(self, x_BLD, state: State | None, valid_BL, reset_BL, *, train: bool):
        """Reads one text in all directions.

        Args:
            valid_BL: True where there is text.
            reset_BL: True where the states are cleared first, for one direction; None: nowhere.

        Returns:
            (input and states of every layer in the text's order, N + 1 of [B, L, ZD]; new state).
        """
        x_BLD = x_BLD * valid_BL[..., None].astype(self.dtype)  # 0 at padding, as the states are
        x_BZLD, valid_BZL = (to_reading_order(x, self.Z) for x in (x_BLD, valid_BL))
        reset_BZL = None if reset_BL is None else reset_BL[:, None]
        all_BZLD, state = self(x_BZLD, state, valid_BZL, reset_BZL, train=train)
        aligned = (to_text_order(h_BZLD) for h_BZLD in all_BZLD)
        return [
            constrain_sharding(h_BLZD.reshape(*h_BLZD.shape[:2], -1), "BLD") for h_BLZD in aligned
        ], state

    def flops(self) -> float:
        """Counts the FLOPs of the products of one word in one direction, forwards."""
        return self.N * float(2 * 2 * self.D * 4 * self.U + 2 * self.U * self.D)

    def _layer(self) -> Recurrent:
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
