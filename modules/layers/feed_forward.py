"""The feed-forward block of a Transformer (Vaswani et al. 2017, section 3.3)."""

from collections.abc import Callable

from flax import linen as nn

from modules.kernels.dense import dense
from modules.layers.dropout import Dropout
from modules.layers.params import ACTIVATIONS, normal, param, zeros


class FeedForward(nn.Module):
    """Two dense layers at each position.

    Attributes:
        F: width between the two.
        activation: of the first, a key of `params.ACTIVATIONS`.
        dropout: after the second layer.
        inner_dropout: before the second layer, as XLNet has it.
        kernel_init, output_init: initializers of the first and of the second layer.
    """

    F: int
    activation: str = "gelu"
    dropout: float = 0.1
    inner_dropout: float = 0.1
    kernel_init: Callable = normal(0.02)
    output_init: Callable = normal(0.02)
    dtype: str = "float32"

    @nn.compact
    def __call__(self, x_BLD, *, train: bool):
        D = x_BLD.shape[-1]
        wi_DF = param(self, "wi_DF", self.kernel_init, (D, self.F), decay=True, dtype=self.dtype)
        bi_F = param(self, "bi_F", zeros, (self.F,), decay=False, dtype=self.dtype)
        wo_FD = param(self, "wo_FD", self.output_init, (self.F, D), decay=True, dtype=self.dtype)
        bo_D = param(self, "bo_D", zeros, (D,), decay=False, dtype=self.dtype)
        # XLNet drops out both the inner and the outer layer; BERT and GPT the outer alone.
        h_BLF = ACTIVATIONS[self.activation](dense(x_BLD, wi_DF) + bi_F)
        h_BLF = Dropout(self.inner_dropout)(h_BLF, train=train)
        return Dropout(self.dropout)(dense(h_BLF, wo_FD) + bo_D, train=train)
