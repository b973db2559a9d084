"""Encodes rows by an average of a backbone's layers, weighed as the task learns to.

Peters et al. 2018 (arXiv 1802.05365), section 3.2: ELMo.
"""

from typing import Any

import jax
from flax import linen as nn

from finetune.encoders.backbone import tokens_of
from modules.backbones import text_mask
from modules.layers.scalar_mix import ScalarMix


class Encoder(nn.Module):
    """All layers of the backbone as one.

    Attributes:
        frozen: the backbone rests; what is learned lies above it.
        dropout: of the average.
        l2: strength of the penalty on the squares of the average's weights.
        copies: averages, each for a use of its own.
    """

    has_backbone_states = True

    backbone: nn.Module
    frozen: bool = False
    dropout: float = 0.0
    l2: float = 0.0
    copies: int = 1

    def setup(self):
        self.mixed = ScalarMix(self.backbone.N + 1, self.copies)
        self.drop = nn.Dropout(self.dropout)

    def __call__(self, batch: dict[str, Any], *, train: bool):
        return self.each(batch, train=train)[0]

    def each(self, batch: dict[str, Any], *, train: bool):
        mask = text_mask(self.backbone, valid_BL=batch["valid_BL"])
        # ELMo's layers are weighed as they are, without dropout between them.
        h_NBLD = self.backbone.layer_states(
            tokens_of(batch), mask=mask, segments_BL=batch.get("segments_BL")
        ).h
        h_NBLD = jax.lax.stop_gradient(h_NBLD) if self.frozen else h_NBLD
        return self.drop(self.mixed(h_NBLD), deterministic=not train)

    def add_losses(self, metrics, h_BLD, rows, *, train: bool):
        """Adds the penalty to the loss."""
        del h_BLD, rows, train
        loss = metrics["loss"]
        total = loss.total + loss.weight * self.mixed.penalty(self.l2)
        return metrics | {"loss": loss.replace(total=total)}
