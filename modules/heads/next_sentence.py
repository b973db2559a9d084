"""Classifies an example by its first position: does its second text follow the first?"""

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

    def __call__(self, pooled_BOD, is_next_BO, weight_BO) -> Metrics:
        """Computes loss and accuracy.

        Args:
            pooled_BOD: of the first positions of each row's examples.
            is_next_BO: 1: the second text follows; or, of other data, belongs to the first.
        """
        # In float32, whatever the model's dtype.
        logits_BOC = pooled_BOD.astype(jnp.float32) @ self.next_DC + self.next_bias_C
        # The released weights have class 0 for texts that follow.
        label_BO = 1 - is_next_BO
        nats_BO = optax.softmax_cross_entropy_with_integer_labels(logits_BOC, label_BO)
        hits_BO, weight = logits_BOC.argmax(-1) == label_BO, weight_BO.sum()
        return {
            "nsp_loss": Sum((nats_BO * weight_BO).sum(), weight, train=True),
            "nsp_accuracy": Sum((hits_BO * weight_BO).sum(), weight, "share"),
        }
