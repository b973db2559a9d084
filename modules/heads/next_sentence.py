"""Classifies a row by its first position: does its second text follow the first?"""

import jax.numpy as jnp
import optax
from flax import linen as nn

from modules.layers import params
from modules.metrics import Metrics, Sum


class NextSentenceHead(nn.Module):
    """Two classes above a backbone's pooler (Devlin et al. 2019, arXiv 1810.04805, section 3.1).

    Attributes:
        D: width of a pooled state.
        initializer, init_scale: of the weights, see `params.INITIALIZERS`.
    """

    D: int
    initializer: str = "normal"
    init_scale: float = 0.02

    def setup(self):
        init = params.initializer(self.initializer, self.init_scale)
        self.next_DC = params.param(self, "next_DC", init, (self.D, 2), decay=True)
        self.next_bias_C = params.param(self, "next_bias_C", params.zeros, (2,), decay=False)

    def __call__(self, pooled_BD, is_next_B, weight_B) -> Metrics:
        """Computes loss and accuracy.

        Args:
            is_next_B: 1: the second text follows; or, of other data, belongs to the first.
        """
        # In float32, whatever the model's dtype.
        logits_BC = pooled_BD.astype(jnp.float32) @ self.next_DC + self.next_bias_C
        # The released weights have class 0 for texts that follow.
        label_B = 1 - is_next_B
        nats_B = optax.softmax_cross_entropy_with_integer_labels(logits_BC, label_B)
        hits_B, weight = logits_BC.argmax(-1) == label_B, weight_B.sum()
        return {
            "nsp_loss": Sum((nats_B * weight_B).sum(), weight, train=True),
            "nsp_accuracy": Sum((hits_B * weight_B).sum(), weight, "share"),
        }
