"""Layer normalisation (Ba et al. 2016, arXiv 1607.06450), in float32 whatever comes in."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from modules.activation_sharding import choose_form


def reference(x_BLD, scale_D, bias_D, epsilon: float):
    """Normalises to mean 0 and variance 1, then scales and adds the bias; in the input's dtype."""
    return _normalise(x_BLD, scale_D, bias_D, epsilon)[0]


def layer_norm(x_BLD, scale_D, bias_D, epsilon: float):
    """Computes `reference`, of which the backward pass keeps the input, not 8 bytes an entry."""
    return choose_form(FORMS)(x_BLD, scale_D, bias_D, epsilon)


def _keep_input(x_BLD, scale_D, bias_D, epsilon: float):
    norm = functools.partial(reference, epsilon=epsilon)
    return jax.checkpoint(norm, prevent_cse=False)(x_BLD, scale_D, bias_D)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _keep_moments(x_BLD, scale_D, bias_D, epsilon: float):
    return reference(x_BLD, scale_D, bias_D, epsilon)


def _forward(x_BLD, scale_D, bias_D, epsilon: float):
    y_BLD, mean_BL1, inverse_BL1 = _normalise(x_BLD, scale_D, bias_D, epsilon)
    # Behind a barrier, or the compiler computes them again where they are read.
    moments = jax.lax.optimization_barrier((mean_BL1, inverse_BL1))
    return y_BLD, (x_BLD, *moments, scale_D, bias_D)


def _backward(epsilon: float, residuals, dy_BLD):
    # With the moments at hand each sum over rows or columns reads the two inputs alone; computed
    # again, they leave the compiler for GPUs with products in float32 that it writes and reads.
    x_BLD, mean_BL1, inverse_BL1, scale_D, bias_D = residuals
    axes = tuple(range(x_BLD.ndim - 1))
    # Behind a barrier: it would be written in float32 for both sums.
    dy32_BLD = jax.lax.optimization_barrier(dy_BLD).astype(jnp.float32)
    normal_BLD = (x_BLD.astype(jnp.float32) - mean_BL1) * inverse_BL1
    dscale_D, dbias_D = (dy32_BLD * normal_BLD).sum(axes), dy32_BLD.sum(axes)
    g_BLD = dy32_BLD * scale_D
    along_BL1 = (g_BLD * normal_BLD).mean(-1, keepdims=True)
    dx_BLD = inverse_BL1 * (g_BLD - g_BLD.mean(-1, keepdims=True) - normal_BLD * along_BL1)
    return dx_BLD.astype(x_BLD.dtype), dscale_D.astype(scale_D.dtype), dbias_D.astype(bias_D.dtype)


_keep_moments.defvjp(_forward, _backward)


def _normalise(x_BLD, scale_D, bias_D, epsilon: float):
    x32_BLD = x_BLD.astype(jnp.float32)
    # Centred first: the mean of squares less the square of the mean would cancel.
    mean_BL1 = x32_BLD.mean(-1, keepdims=True)
    centred_BLD = x32_BLD - mean_BL1
    variance_BL1 = jnp.square(centred_BLD).mean(-1, keepdims=True)
    inverse_BL1 = jax.lax.rsqrt(variance_BL1 + epsilon)
    y_BLD = centred_BLD * inverse_BL1 * scale_D + bias_D
    return y_BLD.astype(x_BLD.dtype), mean_BL1, inverse_BL1


FORMS: dict[str, Callable] = {"gpu": _keep_moments, "default": _keep_input}
