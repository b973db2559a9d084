"""Multi-label classification: any number of labels are true of a text, each told by itself."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from finetune import encoders
from finetune.inputs.rows import RowBuilder
from finetune.inputs.texts import frame_texts
from finetune.tasks import Defaults
from modules.heads.classifier import Classifier
from modules.metrics import Sum


class TaskData(Defaults):
    """Turns examples {"texts": [...], "label": "money war"} into rows, and outputs into labels.

    The label of an example to predict is None.
    """

    plain_field = "texts"  # a line of plain text is an example

    def __init__(self, inputs: RowBuilder, examples: Sequence[dict], *, labels: Sequence[str] = ()):
        """
        Args:
            labels: in order of their ids; none: those of the examples, sorted.
        """
        self.inputs, self.notes = inputs, []
        present = {label for x in examples for label in x["label"].split()}
        self.labels = list(labels) or sorted(present)

    def to_config(self) -> dict[str, Any]:
        """Returns the fields of another `TaskData` of the same task."""
        return dict(labels=self.labels)

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        """Builds a `Task` with one logit for each label."""
        classifier = Classifier(len(self.labels), self.inputs.format.pool, **head)
        return Task(backbone, encoder, classifier, **loss)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Makes rows, and which labels are true of each: [B, C]."""
        arrays, notes = frame_texts(self.inputs, examples, False)
        self.notes += notes
        words = [(x["label"] or "").split() for x in examples]
        true_BC = [[label in row for label in self.labels] for row in words]
        return arrays | {"true_BC": np.array(true_BC)}

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Computes the share of right answers over all labels."""
        true_BC = self.arrays(examples)["true_BC"]
        return {"accuracy": float(((outputs["logits_BC"] > 0) == true_BC).mean())}

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        """Says which labels are true of each example."""
        labels = np.array(self.labels)
        return [{"labels": labels[row].tolist()} for row in outputs["logits_BC"] > 0]


class Task(nn.Module):
    """A logit for each label of a row, trained by the binary cross entropies."""

    backbone: nn.Module
    encoder: nn.Module
    head: Classifier

    def __call__(self, batch, *, train: bool):
        """Computes the mean loss of a label."""
        logits_BC = self.logits(batch, train=train)
        nats_BC = optax.sigmoid_binary_cross_entropy(logits_BC, batch["true_BC"])
        weight_B = batch["weight_B"]
        total = (nats_BC.mean(-1) * weight_B).sum()
        return {"loss": Sum(total, weight_B.sum(), train=True)}

    def logits(self, batch, *, train: bool) -> jax.Array:
        """Computes a logit for each label: [B, C]."""
        h_BLD = self.encoder(batch, train=train)
        return jnp.asarray(self.head(h_BLD, batch["valid_BL"], train=train))

    def predict(self, batch):
        """Computes what `TaskData.scores` reads."""
        return {"logits_BC": self.logits(batch, train=False)}

    def flops(self, B: int, L: int) -> float:
        """Estimates the operations of a training step."""
        return encoders.training_flops(self.backbone, B, L)
