"""Classifies as a larger run does: its soft labels, and its states, are learned beside the labels.

Hinton et al. 2015 (arXiv 1503.02531): soft labels at a temperature.  Sun et al. 2019 (PKD, arXiv
1908.09355): the states that stand for a row, of some layers.  A student of fewer layers begins with
some of the teacher's: the recipe's `init_layers`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from finetune import job
from finetune.encoders.backbone import get_tokens
from finetune.inputs.rows import RowBuilder
from finetune.prediction.predictor import Predictor
from finetune.several.shared_tasks import SharedTasks
from finetune.tasks import classify
from finetune.tasks.classify import build_classifier
from finetune.tuned_run import TunedRun
from modules import plugins
from modules.backbones import text_mask
from modules.layers import pooling
from modules.metrics import Sum
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.runtime.errors import UserError

SOFT, HIDDEN = "soft_BC", "hidden_BND"  # the teacher's logits, and its states


class TaskData(classify.TaskData):
    """Adds to the training rows of `classify` what the teacher makes of them.

    Attributes:
        teacher: folder of a run that classifies, with the same labels.
    """

    uses_devices = True  # the teacher predicts

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        teacher: str,
        teacher_task: str = "",
        layers: Sequence[int] = (),
        **fields: Any,
    ):
        """
        Args:
            teacher: the run's folder, which is read for training alone.
            teacher_task: the one of several tasks of that run; "": it has one.
            layers: of the teacher, from 1, one for each of the student's layers from the first on,
                whose states it learns; none: no states are learned.
            fields: of `classify.TaskData`.
        """
        plugins.check_fields(classify.TaskData, fields, inputs, examples)
        super().__init__(inputs, examples, **fields)
        self.teacher, self.teacher_task, self.layers = teacher, teacher_task, tuple(layers)
        if self.layers and self.both:
            raise UserError("task.layers: states are of one row, and task.both reads two")

    def to_config(self) -> dict[str, Any]:
        fields = dict(teacher=self.teacher, teacher_task=self.teacher_task, layers=self.layers)
        return super().to_config() | fields

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        """Builds a `Task`; `loss` has its fields beside those of `classify.Task`."""
        classifier = build_classifier(backbone, encoder, self.inputs, len(self.labels), **head)
        pool = self.inputs.format.pool
        fields = dict(count=len(self.layers), pool=pool, **loss)
        return plugins.construct(Task, backbone, encoder, classifier, **fields)

    def training_arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds arrays as `arrays` does, and soft_BC and, with layers, hidden_BND.

        Raises:
            UserError: the teacher does not classify, or has other labels.
        """
        tuned = job.load_job(Path(self.teacher).expanduser().absolute(), self.teacher_task)
        if not isinstance(tuned.data, classify.TaskData) or tuned.data.labels != self.labels:
            raise UserError(f"task.teacher: {self.teacher} does not tell {self.labels} apart")
        predictor = Predictor(read_states(tuned, self.layers), Layout(make_mesh()))
        outputs = predictor(examples)
        self.notes.append(f"{self.teacher} teaches, by {predictor.weights}")
        renamed = {"logits_BC": SOFT, HIDDEN: HIDDEN}
        return self.arrays(examples) | {renamed[name]: x for name, x in outputs.items()}


class Teacher(classify.Task):
    """Predicts logits, and the states that stand for the row in some layers.

    Attributes:
        layers: from 1.
        state_pool: where these states stand, of `modules.layers.pooling`.
    """

    layers: tuple[int, ...] = ()
    state_pool: str = "first"

    def predict(self, batch):
        """Computes logits_BC, and with layers hidden_BND."""
        outputs = super().predict(batch)
        if self.layers:
            # The embeddings are layer 0 there.
            h_NBLD = read_layers(self.backbone, batch)[jnp.array(self.layers)]
            outputs[HIDDEN] = pool_states(h_NBLD, batch["valid_BL"], self.state_pool)
        return outputs


def read_states(tuned: TunedRun, layers: tuple[int, ...]) -> TunedRun:
    """Returns a run whose task predicts its states, too."""
    task = tuned.task.tasks[tuned.name] if tuned.name else tuned.task
    if deep := [n for n in layers if not 0 < n <= task.backbone.N]:
        raise UserError(f"task.layers={layers}: the teacher has no layer {deep[0]}")
    parts = (task.backbone, task.encoder, task.head, task.weights)
    teacher: nn.Module = Teacher(*parts, layers=layers, state_pool=tuned.data.inputs.format.pool)
    if tuned.name:
        # Its parameters bear the task's name, which `SharedTasks` puts before them.
        teacher = SharedTasks(task.backbone, {tuned.name: teacher}, {tuned.name: 1.0})
    return tuned._replace(task=teacher)


def read_layers(backbone: Any, batch: Mapping[str, Any]):
    """Computes the states of all layers of a backbone, [N + 1, B, L, D], without dropout."""
    mask = text_mask(backbone, valid_BL=batch["valid_BL"])
    segments_BL = batch.get("segments_BL")
    return backbone.layer_states(get_tokens(dict(batch)), mask=mask, segments_BL=segments_BL).h


def pool_states(h_NBLD, valid_BL, kind: str):
    """Takes the state that stands for the row in each layer, [B, N, D]."""
    pooled_NBD = jax.vmap(lambda h_BLD: pooling.PLAIN[kind](h_BLD, valid_BL))(h_NBLD)
    return jnp.swapaxes(pooled_NBD, 0, 1).astype(jnp.float32)


class Task(classify.Task):
    """Classifies rows, trained by labels and by what a teacher makes of them.

    Attributes:
        temperature: of both softmaxes of the soft labels.
        soft: share of the soft labels in the loss; that of the labels is the rest.
        hidden: weight of the states' distance.
        count: layers, from the first on, that have a teacher; their states are computed without
            dropout.
        pool: where these states stand, of `modules.layers.pooling`.
    """

    temperature: float = 1.0
    soft: float = 0.5
    hidden: float = 0.0
    count: int = 0
    pool: str = "first"

    def __post_init__(self):
        super().__post_init__()
        if self.count and self.count > getattr(self.backbone, "N", 0):
            raise UserError(f"task.layers: {self.count} layers learn states: there are fewer")

    def __call__(self, batch, *, train: bool):
        if not train or SOFT not in batch:
            return super().__call__(batch, train=train)
        logits_BC, h_BLD, rows = self.logits(batch, train=train)
        metrics, weight_B = self.measure(logits_BC, batch), batch["weight_B"]
        nats_B = soften_cross_entropy(logits_BC, batch[SOFT], self.temperature)
        # The job adds up all losses: the labels' gives the soft labels their share.
        labels, weight = metrics["loss"], weight_B.sum()
        metrics["loss"] = dataclasses.replace(labels, total=(1 - self.soft) * labels.total)
        metrics["soft_loss"] = Sum(self.soft * (nats_B * weight_B).sum(), weight, train=True)
        if self.hidden and self.count:
            # Read again without dropout, as the teacher's were: noise is nothing to imitate.
            student_NBLD = read_layers(self.backbone, rows)[1 : self.count + 1]
            student_BND = pool_states(student_NBLD, rows["valid_BL"], self.pool)
            if student_BND.shape != batch[HIDDEN].shape:
                width, wanted = student_BND.shape[-1], batch[HIDDEN].shape[-1]
                raise UserError(f"task.layers: states are {width} wide, the teacher's {wanted}")
            total = (compare_states(student_BND, batch[HIDDEN]) * weight_B).sum()
            metrics["hidden_loss"] = Sum(self.hidden * total, weight, train=True)
        return self.encoder.add_losses(metrics, h_BLD, rows, train=train)


def soften_cross_entropy(logits_BC, teacher_BC, temperature: float):
    """Computes the cross entropy with the teacher's softmax, both at a temperature: [B].

    It is multiplied by the temperature's square, as gradients fall by as much (Hinton et al. 2015).
    """
    share_BC = jax.nn.softmax(teacher_BC / temperature)
    return optax.softmax_cross_entropy(logits_BC / temperature, share_BC) * temperature**2


def compare_states(student_BND, teacher_BND):
    """Computes the squared distance of states of length 1, summed over layers: [B]."""
    # A state of zeros has no direction: the floor keeps its gradient finite.
    unit = lambda x: x / jnp.sqrt(jnp.maximum((x**2).sum(-1, keepdims=True), 1e-12))  # noqa: E731
    return jnp.square(unit(student_BND) - unit(teacher_BND)).sum((1, 2))
