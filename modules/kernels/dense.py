"""The product of activations and a weight, whose weight gradient is one large product."""

import math

import jax
import jax.numpy as jnp


def reference(x_BLD, w_DF):
    """Multiplies [B, L, D] and [D, F], with the gradient of autodiff."""
    return jnp.einsum("BLD,DF->BLF", x_BLD, w_DF)


@jax.custom_vjp
def dense(x_BLD, w_DF):
    """Multiplies [B, L, D] and [D, F], with the gradient of `w_DF` by `weight_grad`."""
    return reference(x_BLD, w_DF)


def _backward(residuals, dy_BLF):
    x_BLD, w_DF = residuals
    return jnp.einsum("BLF,DF->BLD", dy_BLF, w_DF), weight_grad(x_BLD, dy_BLF)


# `reference` within: a policy of what to keep (`REMAT`) sees products, but not through a rule.
dense.defvjp(lambda x_BLD, w_DF: (reference(x_BLD, w_DF), (x_BLD, w_DF)), _backward)


def weight_grad(x_BLD, dy):
    """Multiplies [B, L, D] and [B, L, ...] over all positions: [D, ...]."""
    return jax.lax.platform_dependent(x_BLD, dy, **FORMS)


def _multiply_in_two_dimensions(x_BLD, dy):
    # Whole operands: fused into its transpose, what makes x would be made anew in an order that
    # suits no cache.
    whole = jax.lax.optimization_barrier
    rows = math.prod(x_BLD.shape[:2])
    x_RD, dy_RF = (whole(x).reshape(rows, -1) for x in (x_BLD, dy))
    # A transpose of the narrower operand pays for a faster product; of the wider it does not.
    x_DR = whole(x_RD.T) if x_RD.shape[1] < dy_RF.shape[1] else x_RD.T
    return (x_DR @ dy_RF).reshape(-1, *dy.shape[2:])


def _multiply_by_einsum(x_BLD, dy):
    return jnp.einsum("BLD,BL...->D...", x_BLD, dy)


# On one CPU core a training step of a small BERT (4 layers, 256 wide, 16 x 128 tokens) takes 1.07
# times as long with `reference`.  Forwards and backwards alone, from 256 to 1024 wide 1.19 times,
# from 768 to 3072 1.13 times, and back from the wider 1.02 to 1.04 times.  The four projections of
# a two-stream attention take 1.27 times as long 256 wide, 1.11 times 768 and 1024 wide.
FORMS = {"cpu": _multiply_in_two_dimensions, "default": _multiply_by_einsum}
