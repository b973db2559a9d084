"""Classes of texts: one text, a pair, or more; told from the state that speaks for the row.

Devlin et al. 2019, section 4.1; Yang et al. 2019; Radford et al. 2018, whose language model may
be trained along.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from finetune.inputs.labels import UNKNOWN, UNSEEN, Unseen
from finetune.inputs.rows import RowBuilder
from finetune.metrics import classification
from finetune.model.encoder import folded
from finetune.model.task_model import Features
from modules.layers import params
from modules.layers.pooling import Pool
from modules.metrics import Sum
from pretrain.runtime.errors import UserError

SUMMARIES = ("", "none", "tanh", "pooler")


class Form:
    """Examples {"texts": [...], "label": ...} to rows, and back."""

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
        found = {str(x["label"]) for x in examples if x["label"] is not None}
        self.inputs, self.metrics, self.both = inputs, tuple(metrics), both
        self.labels = list(labels) or sorted(found)
        self.positive = positive or (self.labels[-1] if self.labels else "")
        self.unseen = Unseen(bool(labels) if closed is None else closed)
        self.notes: list[str] = []
        if unknown := [x for x in self.metrics if x not in classification.METRICS]:
            known = ", ".join(classification.METRICS)
            raise UserError(f"task.metrics={unknown[0]!r}: there are {known}")
        if len(self.labels) < 2:
            raise UserError(f"there are {len(self.labels)} labels in the training set: need two")

    def kept(self) -> dict[str, Any]:
        """What another `Form` of the same task is made with."""
        return dict(
            labels=self.labels,
            metrics=self.metrics,
            positive=self.positive,
            both=self.both,
            closed=self.unseen.closed,
        )

    def head(self) -> dict[str, Any]:
        """Fields of `Task` that follow from the data."""
        return dict(C=len(self.labels), place=self.inputs.format.pool)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Rows in the system's format, and labels: their numbers, UNKNOWN or UNSEEN."""
        made = self.rows(examples) | {
            "label_B": np.array([self.number(x) for x in examples], np.int32)
        }
        self.notes += self.unseen.notes()
        return made

    def rows(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """The texts' arrays, tokens_BL or in both orders tokens_BOL."""
        tokens = self.inputs.tokens([text for x in examples for text in x["texts"]])
        ends = np.cumsum([len(x["texts"]) for x in examples])
        parts = [list(tokens[e - len(x["texts"]) : e]) for x, e in zip(examples, ends, strict=True)]
        orders = [1, -1] if self.both else [1]
        rows = [self.inputs.row(texts[::order]) for texts in parts for order in orders]
        cut = sum(row.cut > 0 for row in rows)
        if cut:
            self.notes.append(f"{cut:,} of {len(rows):,} rows were longer than {self.inputs.L}")
        made = self.inputs.arrays(rows)
        if not self.both:
            return made
        return {
            name.replace("_B", "_BO", 1): x.reshape(len(examples), 2, *x.shape[1:])
            for name, x in made.items()
        }

    def number(self, example: dict) -> float:
        """The label's id, UNKNOWN or UNSEEN.  UserError: there can be no such label."""
        if example["label"] is None:
            return UNKNOWN
        if (label := str(example["label"])) not in self.labels:
            return self.unseen.number(label, self.labels, example["where"])
        return self.labels.index(label)

    def predictions(self, outputs: dict[str, np.ndarray]) -> list[str]:
        return [self.labels[i] for i in outputs["logits_BC"].argmax(-1)]

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """The task's metrics."""
        truth = [str(x["label"]) for x in examples]
        return classification.score(self.metrics, self.predictions(outputs), truth, self.positive)

    def lines(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[dict]:
        """The label told of each example, and the probabilities of all."""
        logits_BC = outputs["logits_BC"].astype(np.float64)
        share_BC = np.exp(logits_BC - logits_BC.max(-1, keepdims=True))
        share_BC /= share_BC.sum(-1, keepdims=True)
        told = zip(self.predictions(outputs), share_BC.round(6).tolist(), strict=True)
        return [
            {"label": label, "probabilities": dict(zip(self.labels, row, strict=True))}
            for label, row in told
        ]


class Head(nn.Module):
    """A row's states to numbers: pooled, summed up, and through a dense layer.

    Attributes:
        pool: of `modules.layers.pooling`.
        summary: before the dense layer: "pooler" is the backbone's own (BERT), "tanh" one of the
            task's (XLNet); "": the first if there is one, the second for a state picked out of a
            bidirectional row, else none.
        dropout: before the dense layer.
    """

    C: int
    pool: str
    summary: str
    dropout: float
    scale: float = 0.02

    @nn.compact
    def __call__(self, h_BLD, valid_BL, backbone, options: int, *, train: bool):
        pooled_BD = Pool(self.pool)(h_BLD, valid_BL)
        init = params.normal(self.scale)
        if self.summary == "pooler":
            pooled_BD = backbone.pool(pooled_BD)
        elif self.summary == "tanh":
            pooled_BD = jnp.tanh(nn.Dense(pooled_BD.shape[-1], kernel_init=init)(pooled_BD))
        # Both orders of a pair are added before the last layer.
        pooled_BD = pooled_BD.reshape(-1, options, pooled_BD.shape[-1]).sum(1)
        pooled_BD = nn.Dropout(self.dropout)(pooled_BD, deterministic=not train)
        w_DC = params.param(self, "w_DC", init, (pooled_BD.shape[-1], self.C), decay=True)
        bias_C = params.param(self, "bias_C", params.zeros, (self.C,), decay=False)
        return pooled_BD.astype(jnp.float32) @ w_DC + bias_C


class Task(Features):
    """See `finetune.tasks`.

    Attributes:
        C: classes.
        place: where in a row its system has the state that speaks for it, a kind of pooling.
        pool: another kind, of `modules.layers.pooling`; "": that one.
        summary, dropout: of `Head`.
        weights: of the classes; none: all 1.
        mix, ..., lm: of `Features`.
    """

    C: int = 2
    place: str = "first"
    pool: str = ""
    summary: str = ""
    dropout: float = 0.1
    weights: tuple[float, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "summary", SUMMARIES)
        if self.weights and len(self.weights) != self.C:
            raise UserError(f"task.weights: {len(self.weights)} weights for {self.C} classes")
        if self.summary == "pooler" and (self.bilstm or not self._pooler()):
            raise UserError(
                "task.summary='pooler' is the backbone's own, of its states: this one has none, or "
                "there is a task.bilstm above"
            )

    def setup(self):
        super().setup()
        self.head = Head(self.C, self.pool or self.place, self._summary(), self.dropout)

    def _pooler(self) -> bool:
        return getattr(self.backbone, "pooler", False)

    def _summary(self) -> str:
        if self.summary or self.bilstm:
            return self.summary or "none"
        if self._pooler():
            return "pooler"
        return "tanh" if getattr(self.backbone, "attention", "") == "bi" else "none"

    def _outputs(self, batch, *, train: bool):
        """(logits [B, C], states, the folded batch)."""
        rows, options = folded(batch)
        h_BLD = self.states(rows, train=train)
        logits_BC = self.head(h_BLD, rows["valid_BL"], self.backbone, options, train=train)
        return logits_BC, h_BLD, rows

    def __call__(self, batch, *, train: bool):
        logits_BC, h_BLD, rows = self._outputs(batch, train=train)
        known_B, label_B = self.known(batch["label_B"])
        sums = self.losses(logits_BC, label_B, batch["weight_B"] * known_B)
        if "accuracy" in sums:
            accuracy = sums["accuracy"]
            missed_B = batch["weight_B"] * (batch["label_B"] == UNSEEN)
            sums["accuracy"] = accuracy.replace(weight=accuracy.weight + missed_B.sum())
        return self.along(sums, h_BLD, rows, train=train)

    def known(self, label_B):
        """Which labels are known; the labels, with any other number for the rest."""
        return label_B >= 0, jnp.maximum(label_B, 0)

    def losses(self, logits_BC, label_B, weight_B):
        log_BC = jax.nn.log_softmax(logits_BC)
        own_B = jnp.take_along_axis(log_BC, label_B[:, None], axis=1)[:, 0]
        classes = jnp.array(self.weights or (1.0,) * self.C)
        each_B = weight_B * classes[label_B]
        hits_B = logits_BC.argmax(-1) == label_B
        return {
            "loss": Sum(-(own_B * each_B).sum(), each_B.sum(), train=True),
            "accuracy": Sum((hits_B * weight_B).sum(), weight_B.sum(), "share"),
        }

    def predict(self, batch):
        """Scores of the classes."""
        return {"logits_BC": self._outputs(batch, train=False)[0]}
