"""Gradients in a deep stack of dense layers, by activation, initialization, residual and norm.

Glorot & Bengio 2010 (sigmoid and tanh, Xavier's initialization); Saxe et al. 2014 (arXiv
1312.6120: orthogonal weights); He et al. 2016 (arXiv 1512.03385: residual connections).
"""

import jax
import jax.numpy as jnp
import numpy as np

from modules.layers import params as initializers

ACTIVATIONS = {"sigmoid": jax.nn.sigmoid, "tanh": jnp.tanh, "relu": jax.nn.relu}
INITIALIZERS = {
    "normal": initializers.normal(0.01),  # too small, as many networks before 2010
    "xavier": jax.nn.initializers.glorot_uniform(),
    "orthogonal": jax.nn.initializers.orthogonal(),
}
EPSILON = 1e-6


def measure_layers(
    activation: str,
    init: str,
    *,
    residual: bool,
    norm: bool,
    seed: int,
    N: int,
    D: int,
    B: int,
) -> np.ndarray:
    """Returns the norm of the gradient of every layer's weights, the lowest layer's first.

    Args:
        activation, init: of `ACTIVATIONS` and `INITIALIZERS`.
        residual: a layer's input is added to its output.
        norm: the input of a layer is normed to mean 0 and variance 1 (LayerNorm, before the layer).
        N, D, B: layers, their width, rows of normal inputs.
    """
    f = ACTIVATIONS[activation]
    weights, inputs, loss = jax.random.split(jax.random.key(seed), 3)
    draw = lambda key: INITIALIZERS[init](key, (D, D), jnp.float32)  # noqa: E731
    w_NDD = jax.vmap(draw)(jax.random.split(weights, N))
    x_BD = jax.random.normal(inputs, (B, D))
    # The loss is linear in the top layer's states, with random weights of unit length.
    v_BD = jax.random.normal(loss, (B, D)) / D**0.5

    def layer(x_BD, w_DD):
        # Before the layer, so that the residual path itself stays linear.
        y_BD = f((_standardize(x_BD) if norm else x_BD) @ w_DD)
        return x_BD + y_BD if residual else y_BD, None

    @jax.jit
    @jax.grad
    def gradient(w_NDD):
        return jnp.mean(jnp.sum(v_BD * jax.lax.scan(layer, x_BD, w_NDD)[0], -1))

    return np.asarray(jnp.linalg.norm(gradient(w_NDD).reshape(N, -1), axis=1))


def _standardize(x_BD):
    centered_BD = x_BD - x_BD.mean(-1, keepdims=True)
    return centered_BD / jnp.sqrt(jnp.square(centered_BD).mean(-1, keepdims=True) + EPSILON)
