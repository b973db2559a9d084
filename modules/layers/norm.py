"""Layer normalisation as a layer."""

from flax import linen as nn

from modules.kernels.layer_norm import layer_norm
from modules.layers.params import ones, param, zeros


class Norm(nn.Module):
    """LayerNorm over the last dimension, in float32 whatever the compute dtype."""

    epsilon: float = 1e-12

    @nn.compact
    def __call__(self, x_BLD):
        D = x_BLD.shape[-1]
        scale_D = param(self, "scale_D", ones, (D,), decay=False)
        bias_D = param(self, "bias_D", zeros, (D,), decay=False)
        return layer_norm(x_BLD, scale_D, bias_D, self.epsilon)
