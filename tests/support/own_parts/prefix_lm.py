"""Prefix LM: half of a row is seen from both sides, the rest is predicted from left to right.

Raffel et al. 2020 (arXiv 1910.10683), section 3.2.1, on windows of running text.
"""

import jax.numpy as jnp
from flax import linen as nn

from modules.masks import Mask
from pretrain.objectives import SPECIAL, Special


class Objective(nn.Module):
    """Predicts the second half of each row of `pretrain.data.batches.windows`.

    Attributes:
        share: of a row that is seen whole.
        loss_chunks: pieces in which the softmax is computed.
    """

    backbone: nn.Module
    head: nn.Module
    share: float = 0.5
    loss_chunks: int = 1
    special: Special = SPECIAL

    def __call__(self, batch, *, train: bool):
        """Computes the loss of the tokens behind the prefix."""
        states = self.predict(batch, train=train)
        return self.head.cross_entropy(*states, self.backbone.table(), chunks=self.loss_chunks)

    def nats(self, batch):
        """Computes the log-likelihood of each next token, and its weight: [B, L] each."""
        h_BLD, next_BL, weights_BL = self.predict(batch, train=False)
        return self.head.nats(h_BLD, next_BL, self.backbone.table()), weights_BL

    def predict(self, batch, *, train: bool):
        """Computes states, and returns the tokens that they predict and their weights."""
        tokens_BL, next_BL = batch["tokens_BL"], batch["next_BL"]
        prefix = self.count_prefix(tokens_BL.shape[1])
        h_BLD = self.backbone(tokens_BL, mask=self.mask(len(tokens_BL), prefix), train=train).h
        # The last position of the prefix sees no more than the prefix: it predicts, too.
        is_predicted_L = jnp.arange(tokens_BL.shape[1]) >= prefix - 1
        weights_BL = batch["loss_mask_BL"] * is_predicted_L * batch["weight_B"][:, None]
        return h_BLD, next_BL, weights_BL

    def mask(self, B: int, prefix: int) -> Mask:
        """Makes the mask: causal, but for a prefix that all positions see."""
        return Mask(is_causal=True, prefix_B=jnp.full(B, prefix, jnp.int32))

    def count_prefix(self, L: int) -> int:
        """Counts the positions that are seen whole."""
        return max(1, int(L * self.share))

    def refusal(self) -> str:
        """Says why the backbone cannot be trained so; "" if it can."""
        return self.backbone.refusal(self.mask(1, 1))

    def flops(self, B: int, L: int) -> float:
        """Counts the operations of a training step."""
        return self.backbone.flops(B, L, L) + self.head.flops(B * L)
