"""Trains the backbone's language model along with a task (Radford et al. 2018, section 3.2)."""

from typing import Any

from finetune.encoders import backbone
from modules.heads import language_model
from modules.metrics import Sum
from pretrain.runtime.errors import UserError


class Encoder(backbone.Encoder):
    """Computes the backbone's last states, from which the next token is predicted, too.

    Attributes:
        language_model_head: scores the next token; None: tied to the embedding, nothing besides.
        weight: of the language model's loss (GPT-1: 0.5).
    """

    language_model_head: Any = None
    weight: float = 0.5

    def __post_init__(self):
        if self.language_model_head is None:
            self.language_model_head = language_model.build(self.backbone)
        super().__post_init__()
        if not self.backbone.is_causal:
            raise UserError(
                "task.language_model is of a backbone that reads from left to right (GPT)"
            )

    def add_losses(self, metrics, h_BLD, rows, *, train: bool):
        """Adds "lm_loss", that of the next tokens times the weight."""
        metrics = super().add_losses(metrics, h_BLD, rows, train=train)
        weights_BL = backbone.weigh_positions(rows)[:, 1:]
        states = h_BLD[:, :-1], rows["tokens_BL"][:, 1:], weights_BL
        head, table_VD = self.language_model_head, self.backbone.table()
        loss = head.cross_entropy(*states, table_VD)["loss"]
        return metrics | {"lm_loss": Sum(self.weight * loss.total, loss.weight, train=True)}
