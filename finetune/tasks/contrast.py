"""Trains vectors of sentences by contrast: two views of a text are alike, other texts are not.

ConSERT (Yan et al. 2021, arXiv 2105.11741) makes the views by augmenting the embeddings, SimCSE
(Gao et al. 2021, arXiv 2104.08821) by dropout alone, or takes texts that follow from each other.
Held-out pairs are judged by how the cosines of their vectors rank them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from finetune import encoders
from finetune.encoders.backbone import Encoder, get_tokens
from finetune.inputs.labels import UNKNOWN
from finetune.inputs.options import flatten_options, group_options
from finetune.inputs.rows import RowBuilder
from finetune.inputs.texts import frame_texts
from finetune.metrics import classification
from finetune.tasks import Defaults
from finetune.tasks.classify import check_metrics
from modules import plugins
from modules.backbones import text_mask
from modules.backbones.views import encode_views
from modules.heads.pair_classifier import PairClassifier
from modules.heads.sentence_vector import SentenceVector
from modules.layers import augmentations, params
from modules.losses import contrastive
from modules.metrics import Sum
from pretrain.runtime.errors import UserError

ENCODER_FIELDS = ("frozen", "dropout", "window", "ar", "tar")  # that no plain backbone has set


class TaskData(Defaults):
    """Turns examples {"texts": [...], "label": ...} into rows, each text a row of its own."""

    example_fields = ("texts",)

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        labels: Sequence[str] = (),
        metrics: Sequence[str] = ("pearson", "spearman"),
    ):
        """
        Args:
            labels: classes of the training pairs, as of natural language inference; none: those
                of the examples, sorted.
            metrics: of `classification.METRICS`, of held-out pairs whose labels are numbers.
        """
        # A file may number its classes; a recipe names them by strings.
        present = {str(x["label"]) for x in examples if x["label"] is not None}
        self.inputs, self.metrics = inputs, check_metrics(metrics)
        self.labels = list(labels) or sorted(present)
        self.notes: list[str] = []

    def to_config(self) -> dict[str, Any]:
        return dict(labels=self.labels, metrics=self.metrics)

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        """Builds a `Task` with a `SentenceVector`, and a `PairClassifier` if `loss.features`.

        Keys:
            features: of `PairClassifier`; "": the pairs' classes are not learned.

        Raises:
            UserError: there is another encoder than the plain backbone, or training pairs have no
                classes for a classifier.
        """
        changed = [x for x in ENCODER_FIELDS if getattr(encoder, x, 0)]
        # Embeddings edited before the first layer are read by the whole backbone, trained along.
        if changed or type(encoder) is not Encoder:
            field = changed[0] if changed else "name"
            raise UserError(f"task.encoder.{field}: sentences are read by the backbone alone")
        features, dropout = loss.pop("features", ""), head.pop("dropout", 0.0)
        if features and len(self.labels) < 2:
            raise UserError(f"task.loss.features={features!r}: the training pairs have no classes")
        classifier = PairClassifier(len(self.labels), features, dropout) if features else None
        # Systems differ in the state that speaks for a text: BERT's first, XLNet's last.
        head["pool"] = head.get("pool") or self.inputs.format.pool
        vector = plugins.construct(SentenceVector, backbone, **head)
        named = {"loss": loss.pop("name")} if "name" in loss else {}
        return plugins.construct(
            Task, backbone, encoder, vector, classifier=classifier, **named, **loss
        )

    def training_arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds the rows of `arrays`, and the ids of the pairs' classes where there are any."""
        arrays = self.arrays(examples)
        if self.labels:
            ids = [self.label_id(x) for x in examples]
            arrays["label_B"] = np.array(ids, np.int32)
        return arrays

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds a row of each text: tokens_BOL and the like.

        Raises:
            UserError: examples have unequally many texts.
        """
        # Arrays [B, O, L] have equally many texts of every example.
        count = len(examples[0]["texts"])
        if others := [x for x in examples if len(x["texts"]) != count]:
            raise UserError(
                f"{others[0]['where']}: {len(others[0]['texts'])} texts, and the first has {count}"
            )
        # Each by itself: a sentence's vector must not depend on what it is compared with.
        single = [{"texts": [text]} for x in examples for text in x["texts"]]
        arrays, notes = frame_texts(self.inputs, single)
        self.notes += notes
        return group_options(arrays, count)

    def label_id(self, example: dict) -> int:
        """Returns the number of the label; UserError: training shows no such label."""
        if example["label"] is None:
            return UNKNOWN
        if str(example["label"]) not in self.labels:
            known = ", ".join(self.labels)
            raise UserError(f"{example['where']}: label {example['label']!r} is none of {known}")
        return self.labels.index(str(example["label"]))

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Computes the metrics of the pairs' cosines, and their mean, "cosine".

        Raises:
            UserError: they are no pairs with numbers.
        """
        if "cosine_B" not in outputs:
            raise UserError(
                f"{examples[0]['where']}: held-out vectors are judged by pairs of texts"
            )
        truth = [self.number(x) for x in examples]
        cosines = outputs["cosine_B"].astype(float).tolist()
        # Near 1 for any pairs: the vectors have collapsed, which a ranking need not show.
        mean = {"cosine": float(np.mean(cosines))}
        return classification.score(self.metrics, cosines, truth) | mean

    def number(self, example: dict) -> float:
        """Returns how alike the texts of a pair are; UserError: the label is no number."""
        try:
            return float(example["label"])
        except (TypeError, ValueError):
            raise UserError(
                f"{example['where']}: label {example['label']!r} is no number: held-out pairs have "
                "one, as in STS"
            ) from None

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        """Formats the cosine of each pair, or the vector of each sentence."""
        if "cosine_B" in outputs:
            return [{"cosine": float(x)} for x in outputs["cosine_B"]]
        return [{"vector": x.tolist()} for x in outputs["vector_BD"].astype(float)]


def check_views(task: "Task") -> None:
    """Raises a FieldError if the fields of a task's views do not fit together."""
    if len(task.views) != 2 or len(task.rates) != 2:
        raise plugins.FieldError(f"views={tuple(task.views)}: there are two, and two rates")
    if unknown := set(task.views) - set(augmentations.KINDS):
        known = ", ".join(augmentations.KINDS)
        raise plugins.FieldError(f"views: {min(unknown)!r} is none of {known}")
    if task.temperature <= 0 or not all(0 <= rate <= 1 for rate in task.rates):
        raise plugins.FieldError("temperature is above 0, and rates are shares of 1")
    if augmentations.ADVERSARIAL in task.views and task.classifier is None:
        raise plugins.FieldError("views: 'adversarial' is by a classifier: set features")


def compute_loss(task: "Task", a_BD, b_BD, negatives_BD, weight_B):
    """Computes the loss of vectors whose rows belong together by the fields of a task: [B]."""
    if task.loss == "softmax":
        weights = task.hard_negative_weight, weight_B
        return contrastive.in_batch_softmax(a_BD, b_BD, task.temperature, negatives_BD, *weights)
    if negatives_BD is not None:
        raise UserError("task.loss.name='nt_xent' has no hard negatives: take 'softmax'")
    return contrastive.nt_xent(a_BD, b_BD, task.temperature, weight_B)


LOSSES = ("nt_xent", "softmax")
POSITIVES = ("views", "texts")


class Task(nn.Module):
    """Pulls vectors that belong together towards each other, and pushes the batch's others away.

    Attributes:
        head: from states to vectors.
        classifier: of training pairs by their first views; None: there is none.
        loss: "nt_xent", both ways over 2B - 1 (ConSERT), or "softmax", one way over B (SimCSE).
        positives: what belongs together: the two "views" of each text, texts of an example apart;
            or its first two "texts".  A third one is a hard negative.
        views: two kinds of `augmentations`; of "texts" the first is that of all.
        rates: of the views, where their kinds have one.
        noise_norm: length of the adversarial noise of a token.
        temperature: that cosines are divided by.
        weight: of the contrastive loss, beside the classifier's; 0: it is not computed.
        hard_negative_weight: of "softmax", see `contrastive.in_batch_softmax`.
    """

    compares_rows = True  # see `pretrain.objectives.RowComparer`

    backbone: nn.Module
    encoder: nn.Module
    head: SentenceVector
    classifier: PairClassifier | None = None
    loss: str = "nt_xent"
    positives: str = "views"
    views: tuple[str, ...] = ("none", "none")
    rates: tuple[float, ...] = (0.1, 0.1)
    noise_norm: float = 1.0
    temperature: float = 0.1
    weight: float = 1.0
    hard_negative_weight: float = 0.0

    def __post_init__(self):
        super().__post_init__()
        params.check_choices(self, loss=LOSSES, positives=POSITIVES)
        check_views(self)

    def __call__(self, batch, *, train: bool):
        """Computes the loss of a training batch; held-out pairs have `TaskData.scores` alone."""
        if train or self.is_initializing():
            return self.compare_rows(self.encode_rows(batch, train=train), batch, train=train)
        # Not a loss, which would depend on the other rows that the batch happens to have.
        return {}

    def encode_rows(self, batch, *, train: bool):
        """Computes the vectors of each text, float32: {"first_BOD", "second_BOD"}, by view.

        Where texts belong together there is one view.
        """
        rows, _ = flatten_options(batch)
        kinds = self.views if self.positives == "views" else self.views[:1]
        # A key for each: equal cuts in both views would make a pair alike for nothing.
        keys, views = jax.random.split(self.make_rng("corrupt"), len(kinds)), []
        for kind, rate, key in zip(kinds, self.rates, keys, strict=False):
            view = augmentations.draw_view(kind, key, rows["valid_BL"], self.backbone.D, rate)
            # Not while parameters are made, of which its gradient would have none.
            if kind == augmentations.ADVERSARIAL and not self.is_initializing():
                view = view._replace(noise_BLD=self.find_noise(batch, train=train))
            views.append(view)
        z_BOVD = self.encode_views(batch, views, train=train)
        names = ("first_BOD", "second_BOD")[: len(views)]
        return {name: z_BOVD[:, :, number] for number, name in enumerate(names)}

    def encode_views(self, batch, views, *, train: bool):
        """Computes vectors [B, O, views, D] float32."""
        rows, options = flatten_options(batch)
        segments_BL = rows.get("segments_BL")
        h_BLD, valid_BL = encode_views(
            self.backbone, get_tokens(rows), views, segments_BL=segments_BL, train=train
        )
        # Always the pooling of training: held-out pairs, read by `eval_pool`, come by `predict`.
        z_BD = self.head(h_BLD[None], valid_BL, train=True).astype(jnp.float32)
        return z_BD.reshape(-1, options, len(views), z_BD.shape[-1])

    def find_noise(self, batch, *, train: bool):
        """Computes the noise [B * O, L, D] by which the classifier errs soonest, for both texts."""
        rows, _ = flatten_options(batch)

        def total(task, noise_BLD):
            view = augmentations.View(rows["valid_BL"], noise_BLD=noise_BLD)
            z_BOD = task.encode_views(batch, [view], train=train)[:, :, 0]
            return task.classify(z_BOD, batch, train=train)[0].sum()

        none_BLD = jnp.zeros((*rows["valid_BL"].shape, self.backbone.D))
        (grads_BLD,) = nn.grad(total, self, none_BLD)
        # A constant of the loss: the way to the noise is not learned through.
        return jax.lax.stop_gradient(augmentations.normalize_noise(grads_BLD, self.noise_norm))

    def compare_rows(self, vectors: Mapping[str, Any], batch, *, train: bool):
        """Computes the metrics of a batch from the vectors of its texts."""
        weight_B = batch["weight_B"]
        loss_B, metrics = jnp.zeros(len(weight_B)), {}
        if self.weight:
            contrast_B = self.contrast(vectors, weight_B)
            loss_B += self.weight * contrast_B
            metrics["contrast"] = Sum((contrast_B * weight_B).sum(), weight_B.sum())
        if self.classifier is not None and ("label_B" in batch or self.is_initializing()):
            entropy_B, hits_B, known_B = self.classify(vectors["first_BOD"], batch, train=train)
            loss_B += entropy_B
            known_B *= weight_B
            metrics["classifier"] = Sum((entropy_B * known_B).sum(), known_B.sum())
            metrics["accuracy"] = Sum((hits_B * known_B).sum(), known_B.sum(), "share")
        return {"loss": Sum((loss_B * weight_B).sum(), weight_B.sum(), train=True), **metrics}

    def contrast(self, vectors: Mapping[str, Any], weight_B):
        """Computes the contrastive loss of each example: [B]."""
        z_BOD = vectors["first_BOD"]
        options = z_BOD.shape[1]
        if self.positives == "views":
            pairs = [(z_BOD[:, o], vectors["second_BOD"][:, o]) for o in range(options)]
            return sum(compute_loss(self, *pair, None, weight_B) for pair in pairs)
        if options == 1 and not self.is_initializing():
            raise UserError("task.loss.positives='texts': an example of one text has no positive")
        # min: the example that parameters are made with may have one text.
        positives_BD = z_BOD[:, min(1, options - 1)]
        negatives_BD = z_BOD[:, 2] if options > 2 else None
        return compute_loss(self, z_BOD[:, 0], positives_BD, negatives_BD, weight_B)

    def classify(self, z_BOD, batch, *, train: bool):
        """Classifies pairs by their vectors: (cross entropy, hits, is known), [B] each."""
        assert self.classifier is not None
        logits_BC = self.classifier(z_BOD[:, 0], z_BOD[:, -1], train=train)
        label_B = batch.get("label_B", jnp.zeros(len(z_BOD), jnp.int32))
        known_B = (label_B >= 0).astype(jnp.float32)
        # -1 would be taken from the end of the logits; what 0 gives instead weighs nothing.
        label_B = jnp.maximum(label_B, 0)
        nats_B = optax.softmax_cross_entropy_with_integer_labels(logits_BC, label_B)
        return nats_B * known_B, logits_BC.argmax(-1) == label_B, known_B

    def predict(self, batch):
        """Computes the vector of a text, or the cosine of the first two of an example."""
        rows, options = flatten_options(batch)
        mask = text_mask(self.backbone, valid_BL=rows["valid_BL"])
        given = dict(mask=mask, segments_BL=rows.get("segments_BL"))
        if self.head.reads_layers:
            h_NBLD = self.backbone.layer_states(get_tokens(rows), **given).h
        else:
            h_NBLD = self.backbone(get_tokens(rows), **given, train=False).h[None]
        z_BD = self.head(h_NBLD, rows["valid_BL"], train=False).astype(jnp.float32)
        if options == 1:
            return {"vector_BD": z_BD}
        z_BOD = contrastive.normalize_vectors(z_BD).reshape(-1, options, z_BD.shape[-1])
        return {"cosine_B": (z_BOD[:, 0] * z_BOD[:, 1]).sum(-1)}

    def flops(self, B: int, L: int) -> float:
        views = 2 if self.positives == "views" else 1
        return views * encoders.training_flops(self.backbone, B, L)
