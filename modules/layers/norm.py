"""Layer normalisation (Ba et al. 2016, arXiv 1607.06450)."""

import functools

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.layers.params import ones, param, zeros


class Norm(nn.Module):
    """LayerNorm over the last dimension, in float32 whatever the compute dtype."""

    epsilon: float = 1e-12

    @nn.compact
    def __call__(self, x_BLD):
        D = x_BLD.shape[-1]
        scale_D = param(self, "scale_D", ones, (D,), decay=False)
        bias_D = param(self, "bias_D", zeros, (D,), decay=False)
        # The backward pass keeps the bfloat16 input, 2 bytes an entry; autodiff would keep 8.

        norm = functools.partial(layer_norm, self.epsilon)
        return jax.checkpoint(norm, prevent_cse=False)(x_BLD, scale_D, bias_D)


def layer_norm(epsilon: float, x_BLD, scale_D, bias_D):
    """Normalises to mean 0 and variance 1 in float32, then scales and adds the bias."""
    x32_BLD = x_BLD.astype(jnp.float32)
    # Centred first: the mean of squares less the square of the mean would cancel.
    centred_BLD = x32_BLD - x32_BLD.mean(-1, keepdims=True)
    variance_BL1 = jnp.square(centred_BLD).mean(-1, keepdims=True)
    y_BLD = centred_BLD * jax.lax.rsqrt(variance_BL1 + epsilon)
    return (y_BLD * scale_D + bias_D).astype(x_BLD.dtype)
