"""Batch normalisation (Ioffe & Szegedy 2015, arXiv 1502.03167)."""

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params


class BatchNorm(nn.Module):
    """Normalises each number over a batch in training, and by running averages elsewhere.

    The averages are statistics, see `params.statistic`: a checkpoint holds them beside the weights.

    Attributes:
        epsilon: added to the variance.
        momentum: share of a batch's mean and unbiased variance in the averages after it.
    """

    epsilon: float = 1e-5
    momentum: float = 0.1

    @nn.compact
    def __call__(self, x_BD, weight_B=None, *, train: bool):
        """Normalises [B, D], then scales and adds the bias.

        Args:
            weight_B: 0 of rows that fill up a batch, which no statistic counts; None: all count.
        """
        shape = x_BD.shape[-1:]
        scale_D = params.param(self, "scale_D", params.ones, shape, decay=False)
        bias_D = params.param(self, "bias_D", params.zeros, shape, decay=False)
        mean_D = params.statistic(self, "mean_D", params.zeros, shape)
        variance_D = params.statistic(self, "variance_D", params.ones, shape)
        # All is in float32, whatever the states have: the averages move by small shares.
        x_BD = x_BD.astype(jnp.float32)
        if train:
            real_B = jnp.ones(len(x_BD), bool) if weight_B is None else weight_B > 0
            # Under a mesh those of the whole batch, as the array is.
            new_mean_D, new_variance_D, count = compute_moments(x_BD, real_B)
            # Without a row there is nothing to learn from; of one the unbiased variance is 0.
            share = jnp.where(count > 0, self.momentum, 0.0)
            unbiased_D = new_variance_D * count / jnp.maximum(count - 1, 1)
            params.record_statistics(
                self,
                mean_D=(1 - share) * mean_D + share * new_mean_D,
                variance_D=(1 - share) * variance_D + share * unbiased_D,
            )
            mean_D, variance_D = new_mean_D, new_variance_D
        return (x_BD - mean_D) * jax.lax.rsqrt(variance_D + self.epsilon) * scale_D + bias_D


def compute_moments(x_BD, real_B):
    """Computes mean and variance over the real rows: ([D], [D], their number)."""
    real_B1, count = real_B[:, None], real_B.sum()
    total = jnp.maximum(count, 1)
    mean_D = x_BD.sum(0, where=real_B1) / total
    # Centred first: the mean of squares less the square of the mean would cancel.
    variance_D = jnp.square(x_BD - mean_D).sum(0, where=real_B1) / total
    return mean_D, variance_D, count
