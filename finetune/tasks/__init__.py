"""Kinds of tasks, one a file, named by `task.name`: a half on the host, and a module to train.

A task's module is composed: an encoder (`finetune.encoders`), a head, and a loss.  The recipe's
section `task` has a section for each, and beside them the fields of the host's half:

    task = dict(name="classify", metrics=("f1",), encoder=dict(...), head=dict(...), loss=dict(...))

An example is a dict, see `finetune.datasets`.  Several rows may come of one example.
"""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from flax import linen as nn

from finetune import encoders
from finetune.inputs.rows import RowBuilder
from modules import plugins
from modules.metrics import Metrics
from pretrain.runtime.errors import UserError

FOLDER = "finetune.tasks"
MODULE = ("encoder", "head", "loss", "language_model")  # what `build_task` takes of a section

Arrays = dict[str, np.ndarray]


class TaskData(Protocol):
    """The host's half: `TaskData(inputs, examples, **fields)` of the training examples.

    Attributes:
        notes: lines for the user, as the number of texts that were cut.
        plain_field: the field of an example that a line of plain text fills, "texts" or "words";
            "": an example is more than that.
        example_fields: what an example has to have, labels apart; (): `plain_field` alone.
        uses_devices: `training_arrays` computes on them; may be missing.
    """

    inputs: RowBuilder
    notes: list[str]
    plain_field: str
    example_fields: tuple[str, ...]
    uses_devices: bool

    def arrays(self, examples: Sequence[dict]) -> Arrays:
        """Builds the arrays that the module reads, with an entry for each row."""
        ...

    def training_arrays(self, examples: Sequence[dict]) -> Arrays:
        """Builds the arrays of the training set; mostly `arrays`."""
        ...

    def scores(self, examples: Sequence[dict], outputs: Arrays) -> dict[str, float]:
        """Computes the task's metrics from the outputs of `Task.predict` for the examples' rows."""
        ...

    def format_predictions(self, examples: Sequence[dict], outputs: Arrays) -> list[dict]:
        """Formats the prediction of each example as JSON."""
        ...

    def to_config(self) -> dict[str, Any]:
        """Returns the fields to build this half without examples, as JSON."""
        ...

    def encoder_fields(self) -> dict[str, Any]:
        """Returns the fields of the encoder that follow from the data."""
        ...

    def build_task(
        self, backbone: nn.Module | None, encoder: nn.Module, head: dict, loss: dict
    ) -> nn.Module:
        """Builds the module to train on an encoder; head and loss are sections of the recipe."""
        ...

    def average(self, outputs: Sequence[Arrays]) -> Arrays:
        """Averages what several runs predict for the same rows."""
        ...

    def tune(self, values: Mapping[str, float | None]) -> None:
        """Sets what the best evaluation decides, as a threshold, after training."""
        ...

    # A task that can say whether all of an example is right has, besides,
    # hits(examples, outputs) -> [bool], which `finetune.tasks.joint` reads.


class Task(Protocol):
    """The half to train: a Linen module, as an objective is."""

    backbone: nn.Module | None
    encoder: nn.Module

    def __call__(self, batch: Mapping[str, Any], *, train: bool) -> Metrics:
        """Computes the metrics of a batch, see `pretrain.objectives`."""
        ...

    def predict(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Computes the outputs that `TaskData.scores` reads, with an entry for each row."""
        ...

    def flops(self, B: int, L: int) -> float:
        """Estimates the operations of a training step."""
        ...


def name_fields(data: TaskData) -> set[str]:
    """Names the fields that an example of a task has to have, labels apart."""
    return {*data.example_fields} or {data.plain_field} - {""}


class Defaults:
    """Implements the methods of `TaskData` that most tasks have alike."""

    plain_field = ""
    example_fields: tuple[str, ...] = ()
    uses_devices = False

    def training_arrays(self, examples: Sequence[dict]) -> Arrays:
        return self.arrays(examples)  # type: ignore[attr-defined]

    def encoder_fields(self) -> dict[str, Any]:
        # Nothing of the encoder follows from the data.
        return {}

    def average(self, outputs: Sequence[Arrays]) -> Arrays:
        """Raises a UserError: predictions of this kind have no average."""
        raise UserError("predictions are averaged where task.name='classify'")

    def tune(self, values: Mapping[str, float | None]) -> None:
        return  # nothing is chosen after training


def load_kind(name: str) -> ModuleType:
    """Imports the kind of task of this name.

    Raises:
        plugins.UnknownNameError: no file of finetune/tasks has this name.
    """
    return plugins.load(FOLDER, name, "TaskData")


def build_data(inputs: RowBuilder, examples: Sequence[dict], name: str, **fields: Any) -> TaskData:
    """Builds the host's half of a section `task`; fields of the other half are ignored."""
    host = {field: x for field, x in fields.items() if field not in MODULE}
    kind = load_kind(name).TaskData
    plugins.check_fields(kind, host, inputs, examples)
    return kind(inputs, examples, **host)


def build_task(
    backbone: nn.Module | None,
    data: TaskData,
    *,
    encoder: Mapping[str, Any] | None = None,
    head: Mapping[str, Any] | None = None,
    loss: Mapping[str, Any] | None = None,
    language_model: float = 0.0,
    language_model_head: nn.Module | None = None,
    network: str = "",
    **host: Any,
) -> nn.Module:
    """Composes the module to train; a field that is None has its owner's default.

    Args:
        encoder: name and fields of an encoder.
        head, loss: fields of the task's head and loss.
        language_model: weight of the backbone's language model, trained along; 0: it is not.
        language_model_head: that of the pretrained run; None: tied, with nothing besides.
        network: the task, where the backbone has networks for several; "": it has none.
        host: the rest of a section `task`, which is of the host's half.

    Keys:
        weight: of this task's loss among those of several.
    """
    del host
    sections = [_drop_unset(x) for x in (encoder, head, loss)]
    fields = sections[0] | data.encoder_fields()
    if network:
        fields["network"] = network
    if language_model:
        fields = _with_language_model(fields, language_model)
        fields["language_model_head"] = language_model_head
    return data.build_task(backbone, encoders.build(backbone, **fields), *sections[1:])


def _drop_unset(section: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: x for name, x in (section or {}).items() if x is not None}


def _with_language_model(fields: dict[str, Any], weight: float) -> dict[str, Any]:
    """Replaces the plain backbone by one whose language model is trained along."""
    name = fields.pop("name", "backbone")
    others = [f"task.encoder.{field}" for field, x in fields.items() if x]
    if name != "backbone" or others:
        named = ", ".join([f"task.encoder.name={name!r}"] * (name != "backbone") + others)
        raise plugins.FieldError(
            f"language_model={weight} trains the backbone's last states: without {named}"
        )
    return dict(name="language_model", weight=weight)
