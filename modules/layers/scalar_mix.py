"""A weighted average of layers, whose weights each task learns for itself.

Peters et al. 2018 (arXiv 1802.05365), sections 3.2 and 3.3; bilm-tf's weight_layers.
"""

import jax
import jax.numpy as jnp
from flax import linen as nn

from modules.layers import params


class ScalarMix(nn.Module):
    """Averages gamma * sum(softmax(w) * layers).

    Attributes:
        N: layers.
        mixes: averages, each with its own w and gamma: as many as the task has uses for.
    """

    N: int
    mixes: int = 1

    def setup(self):
        self.w_N = params.param(self, "w_N", params.zeros, (self.mixes, self.N), decay=False)
        self.gamma = params.param(self, "gamma", params.ones, (self.mixes,), decay=False)

    def __call__(self, h_NBLD):
        """Averages [N, B, L, D] to [mixes, B, L, D].

        Raises:
            ValueError: other than N layers.
        """
        if len(h_NBLD) != self.N:
            raise ValueError(f"N={self.N} layers are mixed, {len(h_NBLD)} are given")
        # Zeros at first: every mix begins as the plain average.
        shares_N = (jax.nn.softmax(self.w_N) * self.gamma[:, None]).astype(h_NBLD.dtype)
        return jnp.einsum("mN,NBLD->mBLD", shares_N, h_NBLD)

    def penalty(self, strength: float):
        """Computes strength * sum(w^2), which is added to the loss; a strong one keeps w at 0."""
        return strength * jnp.square(self.w_N).sum()
