"""Layer normalisation, with a backward pass that keeps only what it reads."""

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
        return _normed(self.epsilon, x_BLD, scale_D, bias_D)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _normed(epsilon: float, x_BLD, scale_D, bias_D):
    y_BLD, _ = _standard(epsilon, x_BLD)
    return (y_BLD * scale_D + bias_D).astype(x_BLD.dtype)


def _standard(epsilon: float, x_BLD):
    """Of mean 0 and deviation 1, in float32; and what each row was multiplied by for that."""
    x_BLD = x_BLD.astype(jnp.float32)
    centred_BLD = x_BLD - x_BLD.mean(-1, keepdims=True)
    by_BL1 = jax.lax.rsqrt(jnp.square(centred_BLD).mean(-1, keepdims=True) + epsilon)
    return centred_BLD * by_BL1, by_BL1


def _normed_backward(epsilon: float, kept, dy_BLD):
    x_BLD, scale_D = kept
    y_BLD, by_BL1 = _standard(epsilon, x_BLD)  # again: cheaper than to keep it in float32
    dy_BLD = dy_BLD.astype(jnp.float32)
    rows = tuple(range(dy_BLD.ndim - 1))
    dscale_D, dbias_D = (dy_BLD * y_BLD).sum(rows), dy_BLD.sum(rows)
    dy_BLD *= scale_D
    common_BLD = dy_BLD.mean(-1, keepdims=True) + y_BLD * (dy_BLD * y_BLD).mean(-1, keepdims=True)
    return (by_BL1 * (dy_BLD - common_BLD)).astype(x_BLD.dtype), dscale_D, dbias_D


_normed.defvjp(
    lambda epsilon, x, scale, bias: (_normed(epsilon, x, scale, bias), (x, scale)), _normed_backward
)
