"""Layers into one: a weighted average whose weights each task learns for itself.

Peters et al. 2018 (arXiv 1802.05365), sections 3.2 and 3.3; bilm-tf's weight_layers.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params


class ScalarMix(nn.Module):
    """gamma times the sum of softmax(w) times layers.

    Attributes:
        N: layers.
        mixes: averages, each with its own w and gamma: as many as the task has uses for.
        norm: each layer is normed first: one mean and one variance of all that is no padding.
        epsilon: added to that variance.
    """

    N: int
    mixes: int = 1
    norm: bool = False
    epsilon: float = 1e-12

    def setup(self):
        self.w_N = params.param(self, "w_N", params.zeros, (self.mixes, self.N), decay=False)
        self.gamma = params.param(self, "gamma", params.ones, (self.mixes,), decay=False)

    def __call__(self, h_NBLD, valid_BL=None):
        """[N, B, L, D] -> [mixes, B, L, D]; `valid_BL`, None: all, is False at padding.

        Raises:
            ValueError: other than N layers.
        """
        if len(h_NBLD) != self.N:
            raise ValueError(f"N={self.N} layers are mixed, {len(h_NBLD)} are given")
        if self.norm:
            h_NBLD = _normed(h_NBLD, valid_BL, self.epsilon)
        shares_N = (jax.nn.softmax(self.w_N) * self.gamma[:, None]).astype(h_NBLD.dtype)
        return jnp.einsum("mN,NBLD->mBLD", shares_N, h_NBLD)

    def penalty(self, strength: float):
        """Strength times the squares of all w, to be added to the loss; much: a plain average."""
        return strength * jnp.square(self.w_N).sum()


def _normed(h_NBLD, valid_BL, epsilon: float):
    """Padding moves neither mean nor variance; in float32, no scale or offset."""
    h32_NBLD = h_NBLD.astype(jnp.float32)
    counts = jnp.ones(h_NBLD.shape[1:3], bool) if valid_BL is None else valid_BL
    mean = lambda x_NBLD: x_NBLD.mean((1, 2, 3), keepdims=True, where=counts[None, ..., None])  # noqa: E731
    centred_NBLD = h32_NBLD - mean(h32_NBLD)
    normed_NBLD = centred_NBLD * jax.lax.rsqrt(mean(jnp.square(centred_NBLD)) + epsilon)
    return normed_NBLD.astype(h_NBLD.dtype)
