"""Kim's convolutional network over words: filters on windows of words (2014, arXiv 1408.5882)."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from modules.activation_sharding import constrain_sharding
from modules.backbones.word_network import WordNetwork
from modules.kernels.word_windows import multiply_windows
from modules.layers import params
from modules.layers.dropout import Dropout
from modules.layers.recurrent_masks import refuse_all_but_lengths
from modules.masks import Mask

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh}
KIM = ((3, 100), (4, 100), (5, 100))
TABLES = {"learned": "token_VD", "fixed": "fixed_VD"}


class Backbone(WordNetwork):
    """Words to states, what the filters make of the windows around each word.

    Attributes:
        V, D, dropout, init_scale: see `WordNetwork`; the paper has no dropout there.
        filters: (words wide, how many) each; together they are X.
        activation: "relu", as in the paper's code, or "tanh".
        tables: of words' vectors: "learned", "fixed", or both, of which each filter sees the sum,
            since it is applied to both and the results are added up (multichannel).
    """

    KIND: ClassVar[str] = "a CNN"
    N: ClassVar[int] = 1

    D: int = 300
    filters: tuple[tuple[int, int], ...] = KIM
    activation: str = "relu"
    tables: tuple[str, ...] = ("learned",)
    init_scale: float = 0.25

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "activation", ACTIVATIONS)
        if not self.tables or set(self.tables) - TABLES.keys():
            raise ValueError(f"tables={tuple(self.tables)}: one of {', '.join(TABLES)}, or both")

    def setup(self):
        if "learned" in self.tables:
            self.token_VD = self.make_table("token_VD", decay=True)
        if "fixed" in self.tables:
            self.fixed_VD = self.make_table("fixed_VD", decay=False)
        self.kernels = [self._kernel(*filter) for filter in self.filters]
        self.bias_X = params.param(
            self, "bias_X", params.zeros, (self.width,), decay=False, depth=1, dtype=self.dtype
        )
        self.drop = Dropout(self.dropout)

    def _kernel(self, w: int, X: int):
        # The paper's code: small for relu, Glorot and Bengio's bound for tanh.
        scale = 0.01 if self.activation == "relu" else math.sqrt(6 / (w * self.D + X))
        init, shape = params.initializer("uniform", scale), (w, self.D, X)
        return params.param(
            self, f"kernel{w}_DX", init, shape, decay=True, depth=1, dtype=self.dtype
        )

    @property
    def width(self) -> int:
        return sum(many for _, many in self.filters)

    def refusal(self, mask: Mask) -> str:
        return refuse_all_but_lengths(mask, "a CNN sees")

    def table(self):
        """Returns the words' vectors, [V, D]: the learned ones where there are such."""
        return self.token_VD if "learned" in self.tables else self.fixed_VD

    def look_up(self, tokens_BL):
        """Looks up the words' vectors, [B, L, D]: the sum over the tables."""
        tables = [self.token_VD] if "learned" in self.tables else []
        if "fixed" in self.tables:
            tables.append(jax.lax.stop_gradient(self.fixed_VD))
        return sum(table_VD[tokens_BL].astype(self.dtype) for table_VD in tables)

    def flops(self, B: int, L: int, P: int) -> float:
        del P  # every state is computed, whether or not it is read
        return 6.0 * B * L * self.D * sum(w * many for w, many in self.filters)

    def read_layers(self, x_BLD, valid_BL, *, mask: Mask, memory: None, train: bool):
        """Computes [the states [B, L, X]], and None."""
        del mask, memory, train
        windows = multiply_windows(x_BLD, self.kernels, valid_BL)
        features = [_highest_windows(y_BLX, valid_BL) for y_BLX in windows]
        h_BLX = jnp.concatenate(features, -1) + self.bias_X
        h_BLX = jnp.where(valid_BL[..., None], ACTIVATIONS[self.activation](h_BLX), 0)
        return [constrain_sharding(h_BLX, "BLX")], None


def _highest_windows(y_BLX, valid_BL):
    """Takes the products of each word's window, at the ends the highest of those hanging over."""
    # Before bias and activation, which change no order.  Entry j of the L + w - 1 is of the window
    # that ends at position j.
    L = valid_BL.shape[1]
    w = y_BLX.shape[1] - L + 1
    # In the paper's code windows hang over either edge by all but one word, where they see zeros.
    # The first and the last word have those, besides the window around them, so that the maximum
    # over a row's words is that of the paper's code.
    middle, places_L = w // 2, jnp.arange(L)
    first_B, last_B = valid_BL.argmax(1), L - 1 - valid_BL[:, ::-1].argmax(1)
    left_B1X = _highest(y_BLX, first_B, 0, middle + 1)
    # A window of padding alone gives 0 in the paper's code, whose rows all have one at the end.
    right_B1X = jnp.maximum(_highest(y_BLX, last_B, middle, w), 0)
    h_BLX = y_BLX[:, middle : middle + L]
    h_BLX = jnp.where((places_L == first_B[:, None])[..., None], left_B1X, h_BLX)
    is_last_BL1 = (places_L == last_B[:, None])[..., None]
    return jnp.where(is_last_BL1, jnp.maximum(h_BLX, right_B1X), h_BLX)


def _highest(y_BLX, place_B, begin: int, end: int):
    """Takes the maximum of the entries from place + begin up to place + end: [B, 1, X]."""
    index_BL1 = (place_B[:, None] + jnp.arange(begin, end))[..., None]
    return jnp.take_along_axis(y_BLX, index_BL1, axis=1).max(1, keepdims=True)
