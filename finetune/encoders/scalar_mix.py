"""Encodes rows by an average of a backbone's layers, weighed as the task learns to.

Peters et al. 2018 (arXiv 1802.05365), section 3.2: ELMo.
"""

from typing import Any

from finetune.encoders.backbone import BackboneReader, get_tokens
from modules.backbones import text_mask
from modules.layers.scalar_mix import ScalarMix


class Encoder(BackboneReader):
    """Averages all layers of the backbone, for each use with weights of its own.

    Attributes:
        l2: strength of the penalty on the squares of the averages' weights.
    """

    l2: float = 0.0

    def setup(self):
        super().setup()
        self.mixed = ScalarMix(self.backbone.N + 1, self.copies)

    def read(self, batch: dict[str, Any], *, train: bool):
        """Computes the states [N + 1, B, L, D] of all layers."""
        del train  # ELMo's layers are weighed as they are, without dropout between them
        mask = text_mask(self.backbone, valid_BL=batch["valid_BL"])
        fields = dict(segments_BL=batch.get("segments_BL"), **self.choose_network())
        return self.backbone.layer_states(get_tokens(batch), mask=mask, **fields).h

    def combine(self, h):
        return self.mixed(h)

    def add_losses(self, metrics, h_BLD, rows, *, train: bool):
        """Adds the penalty to the loss."""
        del h_BLD, rows, train
        loss = metrics["loss"]
        total = loss.total + loss.weight * self.mixed.penalty(self.l2)
        return metrics | {"loss": loss.replace(total=total)}
