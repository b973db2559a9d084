"""Classifies one text, a pair, or more, from the state that stands for the row.

Devlin et al. 2019, section 4.1; Yang et al. 2019; Radford et al. 2018, whose language model may
be trained along.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from finetune import encoders
from finetune.inputs.labels import UNKNOWN, UNSEEN, Unseen
from finetune.inputs.options import flatten_options
from finetune.inputs.rows import RowBuilder
from finetune.inputs.texts import frame_texts
from finetune.metrics import classification
from finetune.tasks import Defaults
from modules import plugins
from modules.heads import choose_summary
from modules.heads.classifier import Classifier
from modules.metrics import Metrics, Sum
from pretrain.runtime.errors import UserError


class TaskData(Defaults):
    """Turns examples {"texts": [...], "label": ...} into rows, and outputs into labels."""

    plain_field = "texts"

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        labels: Sequence[str] = (),
        metrics: Sequence[str] = ("accuracy",),
        positive: str = "",
        both: bool = False,
        closed: bool | None = None,
    ):
        """
        Args:
            labels: in order of their ids; none: those of the examples, sorted.
            metrics: of `classification.METRICS`.
            positive: the class that F1 is of; "": the last.
            both: pairs are read in both orders and their states added (Radford et al. 2018).
            closed: a label that is none of these is refused; False: it counts as an error, and is
                left out of the loss; None: refused if `labels` are named.
        """
        present = {str(x["label"]) for x in examples if x["label"] is not None}
        self.inputs, self.metrics, self.both = inputs, check_metrics(metrics), both
        # Sorted: their ids do not depend on the order of the examples.
        self.labels = list(labels) or sorted(present)
        # As of "0" and "1" in GLUE, whose F1 is that of "1".
        self.positive = positive or (self.labels[-1] if self.labels else "")
        # Labels that somebody listed are all that there are; a sample may lack some.
        self.unseen = Unseen(bool(labels) if closed is None else closed)
        self.notes: list[str] = []
        if len(self.labels) < 2:
            raise UserError(f"there are {len(self.labels)} labels in the training set: need two")

    def to_config(self) -> dict[str, Any]:
        return dict(
            labels=self.labels,
            metrics=self.metrics,
            positive=self.positive,
            both=self.both,
            closed=self.unseen.closed,
        )

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        """Builds a `Task` with a `Classifier`; `loss` may have `weights` of the classes."""
        classifier = build_classifier(backbone, encoder, self.inputs, len(self.labels), **head)
        return plugins.construct(Task, backbone, encoder, classifier, **loss)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds rows in the system's format, and labels: their ids, UNKNOWN or UNSEEN."""
        arrays, notes = frame_texts(self.inputs, examples, self.both)
        arrays["label_B"] = np.array([self.label_id(x) for x in examples], np.int32)
        self.notes += notes + self.unseen.notes()
        return arrays

    def label_id(self, example: dict) -> int:
        """Returns the label's id, UNKNOWN or UNSEEN.  UserError: there can be no such label."""
        if example["label"] is None:
            return UNKNOWN
        if (label := str(example["label"])) not in self.labels:
            return self.unseen.number(label, self.labels, example["where"])
        return self.labels.index(label)

    def predictions(self, outputs: dict[str, np.ndarray]) -> list[str]:
        """Returns the likeliest label of each row."""
        return [self.labels[i] for i in outputs["logits_BC"].argmax(-1)]

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        truth = [str(x["label"]) for x in examples]
        return classification.score(self.metrics, self.predictions(outputs), truth, self.positive)

    def hits(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[bool]:
        """Returns whether each example's label is predicted."""
        pairs = zip(self.predictions(outputs), examples, strict=True)
        return [label == str(x["label"]) for label, x in pairs]

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        """Formats the likeliest label of each example, and the probabilities of all."""
        share_BC = compute_shares(outputs["logits_BC"])
        pairs = zip(self.predictions(outputs), share_BC.round(6).tolist(), strict=True)
        return [
            {"label": label, "probabilities": dict(zip(self.labels, row, strict=True))}
            for label, row in pairs
        ]

    def average(self, outputs: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Averages the probabilities of the classes: their logarithms, as logits."""
        # Averages probabilities, not logits: a model that is sure of itself has larger logits.
        share_BC = np.mean([compute_shares(x["logits_BC"]) for x in outputs], 0)
        return {"logits_BC": np.log(np.maximum(share_BC, np.finfo(np.float64).tiny))}


def compute_shares(logits_BC: np.ndarray) -> np.ndarray:
    """Computes the softmax in float64, [B, C]."""
    logits_BC = logits_BC.astype(np.float64)
    # Less the highest, as exp of a large logit overflows.
    share_BC = np.exp(logits_BC - logits_BC.max(-1, keepdims=True))
    return share_BC / share_BC.sum(-1, keepdims=True)


def check_metrics(metrics: Sequence[str]) -> tuple[str, ...]:
    """Returns the metrics; UserError if one is not known."""
    if unknown := [x for x in metrics if x not in classification.METRICS]:
        known = ", ".join(classification.METRICS)
        raise UserError(f"task.metrics={unknown[0]!r}: there are {known}")
    return tuple(metrics)


def build_classifier(
    backbone, encoder, inputs: RowBuilder, C: int, *, pool: str = "", summary: str = "", **fields
) -> Classifier:
    """Builds the head of a row.

    Args:
        pool: kind of pooling; "": the place whose state stands for the row in the text format.
        summary: of `Classifier`; "": see `choose_summary`: the backbone's pooler if it has one,
            "tanh" if it is bidirectional, else "none".
    """
    if summary == "pooler" and choose_summary(backbone, encoder.has_backbone_states) != summary:
        raise UserError(
            "task.head.summary='pooler' is the backbone's own, of its states: this one has none, "
            "or there is a network of the task's own above"
        )
    summary = summary or choose_summary(backbone, encoder.has_backbone_states)
    pooler = backbone if summary == "pooler" else None
    pool = pool or inputs.format.pool
    return plugins.construct(Classifier, C, pool, summary, pooler=pooler, **fields)


class Task(nn.Module):
    """Classifies rows, trained by the cross entropy of the classes.

    Attributes:
        encoder, head: from rows to states, and from these to logits.
        weights: of the classes; none: all 1.
    """

    backbone: nn.Module
    encoder: nn.Module
    head: Classifier
    weights: tuple[float, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        if self.weights and len(self.weights) != self.head.C:
            raise UserError(
                f"task.loss.weights: {len(self.weights)} weights for {self.head.C} classes"
            )

    def __call__(self, batch, *, train: bool):
        logits_BC, h_BLD, rows = self.logits(batch, train=train)
        metrics = self.measure(logits_BC, batch)
        return self.encoder.add_losses(metrics, h_BLD, rows, train=train)

    def measure(self, logits_BC, batch) -> Metrics:
        """Computes the loss of logits, and their accuracy."""
        # Below 0 are labels without a logit: whichever is read for them weighs nothing.
        label_B, weight_B = jnp.maximum(batch["label_B"], 0), batch["weight_B"]
        known_B = weight_B * (batch["label_B"] >= 0)
        # An unseen label is in no loss, as it has no logit, but a miss in the accuracy.
        missed_B = weight_B * (batch["label_B"] == UNSEEN)
        nats_B = optax.softmax_cross_entropy_with_integer_labels(logits_BC, label_B)
        # The mean's denominator, too, is weighed: the loss stays one of a mean example.
        each_B = known_B * jnp.array(self.weights or (1.0,) * self.head.C)[label_B]
        hits_B = logits_BC.argmax(-1) == label_B
        return {
            "loss": Sum((nats_B * each_B).sum(), each_B.sum(), train=True),
            "accuracy": Sum((hits_B * known_B).sum(), known_B.sum() + missed_B.sum(), "share"),
        }

    def logits(self, batch, *, train: bool):
        """Computes (logits [B, C], states, the batch with both orders of a pair apart)."""
        rows, orders = flatten_options(batch)
        h_BLD = self.encoder(rows, train=train)
        weight_B = batch.get("weight_B")
        logits_BC = self.head(h_BLD, rows["valid_BL"], orders, weight_B=weight_B, train=train)
        return logits_BC, h_BLD, rows

    def predict(self, batch):
        """Computes the logits of the classes."""
        return {"logits_BC": self.logits(batch, train=False)[0]}

    def flops(self, B: int, L: int) -> float:
        return encoders.training_flops(self.backbone, B, L)
