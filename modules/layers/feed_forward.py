"""The feed-forward block of a Transformer."""

from collections.abc import Callable

from flax import linen as nn

from modules.kernels.dense import dense
from modules.layers.dropout import Dropout
from modules.layers.params import ACTIVATIONS, normal, param, zeros


class FeedForward(nn.Module):
    """Two dense layers; dropout after the second and, as XLNet has it, `inside`: before it."""

    F: int
    activation: str = "gelu"
    dropout: float = 0.1
    inside: float = 0.1
    inwards: Callable = normal(0.02)
    outwards: Callable = normal(0.02)
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x_BLD, *, train: bool):
        D = x_BLD.shape[-1]
        wi_DF = param(self, "wi_DF", self.inwards, (D, self.F), decay=True, dtype=self.dtype)
        bi_F = param(self, "bi_F", zeros, (self.F,), decay=False, dtype=self.dtype)
        wo_FD = param(self, "wo_FD", self.outwards, (self.F, D), decay=True, dtype=self.dtype)
        bo_D = param(self, "bo_D", zeros, (D,), decay=False, dtype=self.dtype)
        h_BLF = ACTIVATIONS[self.activation](dense(x_BLD, wi_DF) + bi_F)
        h_BLF = Dropout(self.inside)(h_BLF, train=train)
        return Dropout(self.dropout)(dense(h_BLF, wo_FD) + bo_D, train=train)
