"""Predicts a number of texts, as the similarity of two sentences, by squared error.

Devlin et al. 2019, section 4.1 (STS-B).
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from finetune import encoders
from finetune.inputs.options import flatten_options
from finetune.inputs.rows import RowBuilder
from finetune.inputs.texts import frame_texts
from finetune.metrics import classification
from finetune.tasks import Defaults
from finetune.tasks.classify import build_classifier, check_metrics
from modules import plugins
from modules.heads.classifier import Classifier
from modules.metrics import Sum
from pretrain.runtime.errors import UserError


class TaskData(Defaults):
    """Turns examples {"texts": [...], "label": number} into rows, and outputs into numbers."""

    plain_field = "texts"

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        metrics: Sequence[str] = ("pearson", "spearman"),
        both: bool = False,
    ):
        """
        Args:
            metrics: of `classification.METRICS`.
            both: pairs are read in both orders and their states added (Radford et al. 2018).
        """
        del examples
        self.inputs, self.metrics, self.both = inputs, check_metrics(metrics), both
        self.notes: list[str] = []

    def to_config(self) -> dict[str, Any]:
        return dict(metrics=self.metrics, both=self.both)

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        classifier = build_classifier(backbone, encoder, self.inputs, 1, **head)
        return plugins.construct(Task, backbone, encoder, classifier, **loss)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds rows in the system's format, and numbers, NaN where one is not known."""
        arrays, notes = frame_texts(self.inputs, examples, self.both)
        self.notes += notes
        return arrays | {"label_B": np.array([self.number(x) for x in examples], np.float32)}

    def number(self, example: dict) -> float:
        """Returns the label; NaN: not known.  UserError: it is no number."""
        if example["label"] is None:
            # Not 0, which is a label like others.
            return float("nan")
        try:
            return float(example["label"])
        except (TypeError, ValueError):
            raise UserError(
                f"{example['where']}: label {example['label']!r} is no number"
            ) from None

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        truth = [self.number(x) for x in examples]
        return classification.score(self.metrics, outputs["value_B"].astype(float).tolist(), truth)

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        return [{"value": float(x)} for x in outputs["value_B"]]


class Task(nn.Module):
    """Predicts a number of a row, trained by its squared error."""

    backbone: nn.Module
    encoder: nn.Module
    head: Classifier

    def __call__(self, batch, *, train: bool):
        value_B, h_BLD, rows = self.values(batch, train=train)
        label_B = batch["label_B"]
        weight_B = batch["weight_B"] * ~jnp.isnan(label_B)
        # A weight of 0 alone would leave NaN in the sum, and in the gradient.
        error_B = value_B - jnp.nan_to_num(label_B)
        total = (jnp.square(error_B) * weight_B).sum()
        metrics = {"loss": Sum(total, weight_B.sum(), train=True)}
        return self.encoder.add_losses(metrics, h_BLD, rows, train=train)

    def values(self, batch, *, train: bool):
        """Computes (numbers [B], states, the batch with both orders of a pair apart)."""
        rows, orders = flatten_options(batch)
        h_BLD = self.encoder(rows, train=train)
        weight_B = batch.get("weight_B")
        value_B1 = self.head(h_BLD, rows["valid_BL"], orders, weight_B=weight_B, train=train)
        return value_B1[:, 0], h_BLD, rows

    def predict(self, batch):
        return {"value_B": self.values(batch, train=False)[0]}

    def flops(self, B: int, L: int) -> float:
        return encoders.training_flops(self.backbone, B, L)
