"""Learns several tasks of one row, which is read once: a sentence's class and its words' tags.

Liu & Lane 2016 (arXiv 1609.01454), Chen et al. 2019 (arXiv 1902.10909): intents and slots.  The
search BERT of Meituan learns relevance and entities so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flax import linen as nn

from finetune import encoders, tasks
from finetune.encoders.given import Given
from finetune.inputs.rows import RowBuilder
from finetune.several.shared_tasks import weigh_metrics
from finetune.tasks import Arrays, Defaults
from pretrain.distributed.sharding import parse_letters
from pretrain.runtime.errors import UserError

# A row has one of each array that encoders read; all others are of a part, "slots.label_BL".
ROWS = ("tokens_BL", "tokens_BLW", "valid_BL", "segments_BL")
READ = (*ROWS, "word_BL", "own_BL", "own_chars_BLW")
MODULE = ("head", "loss", "weight")  # of a part's section, what its host's half does not take


class TaskData(Defaults):
    """Turns examples that have the labels of every part into rows, and outputs into theirs."""

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        parts: Mapping[str, Mapping[str, Any]],
    ):
        """
        Args:
            parts: by name, the sections of tasks: name, fields, `head`, `loss`, and the `weight`
                of its loss.
        """
        self.inputs, self.sections = inputs, {name: dict(parts[name]) for name in sorted(parts)}
        self.notes: list[str] = []
        self.parts: dict[str, tasks.TaskData] = {}
        if len(parts) < 2:
            raise UserError(f"task.parts: {len(parts)} tasks: two or more are learned together")
        for name, section in self.sections.items():
            fields = {k: x for k, x in section.items() if k not in MODULE}
            self.parts[name] = tasks.build_data(inputs, examples, **fields)
        every = set().union(*map(tasks.name_fields, self.parts.values()))
        self.example_fields = tuple(sorted(every))

    def to_config(self) -> dict[str, Any]:
        learned = {name: part.to_config() for name, part in self.parts.items()}
        return {"parts": {name: x | learned[name] for name, x in self.sections.items()}}

    def encoder_fields(self) -> dict[str, Any]:
        every = [part.encoder_fields() for part in self.parts.values()]
        return {name: x for fields in every for name, x in fields.items()}

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        """Builds a `Task` of the parts'; what head and loss say holds where a part says nothing."""
        given, parts = Given(encoder.has_backbone_states), {}
        for name, part in self.parts.items():
            section = self.sections[name]
            fields = [_drop_unset(x, section.get(k)) for k, x in (("head", head), ("loss", loss))]
            parts[name] = part.build_task(backbone, given, *fields)
        weights = {name: float(x.get("weight", 1.0)) for name, x in self.sections.items()}
        return Task(backbone, encoder, parts, weights)

    def arrays(self, examples: Sequence[dict]) -> Arrays:
        """Builds rows once, and beside them the arrays of every part.

        Raises:
            UserError: an example has several rows, or the parts frame it differently.
        """
        by_part = {name: part.arrays(examples) for name, part in self.parts.items()}
        for part in self.parts.values():
            self.notes += part.notes
            # Or the next split would say them again.
            part.notes.clear()
        # Rows of those parts whose labels have places in them.
        placed = [name for name, arrays in by_part.items() if has_places(arrays)]
        shared: Arrays = {}
        for name in [*placed, *by_part]:
            shared = {**{k: x for k, x in by_part[name].items() if k in READ}, **shared}
        if (rows := len(shared["valid_BL"])) != len(examples):
            raise UserError(
                f"batches.L={self.inputs.L} is too short: {len(examples):,} sentences are read in "
                f"{rows:,} rows, and each has one label"
            )
        for name in placed:
            # A label would otherwise stand at another part's word.
            if any((by_part[name][x] != shared[x]).any() for x in ROWS if x in shared):
                raise UserError(f"task.parts.{name} frames texts otherwise than {placed[0]} does")
        labels = {
            f"{name}.{k}": x
            for name, arrays in by_part.items()
            for k, x in arrays.items()
            if k not in READ
        }
        return shared | labels

    def scores(self, examples: Sequence[dict], outputs: Arrays) -> dict[str, float]:
        """Computes the metrics of every part, as "slots_f1", and the share of `exact` rows.

        "exact": all parts' labels of the row are right, where every part can tell.
        """
        by_part = {name: select_part(name, outputs) for name in self.parts}
        scores = {
            f"{name}_{metric}": x
            for name, part in self.parts.items()
            for metric, x in part.scores(examples, by_part[name]).items()
        }
        hits = [
            part.hits(examples, by_part[name])
            for name, part in self.parts.items()
            if hasattr(part, "hits")
        ]
        if len(hits) == len(self.parts):
            scores["exact"] = float(np.all(hits, axis=0).mean())
        return scores

    def format_predictions(self, examples: Sequence[dict], outputs: Arrays) -> list[dict]:
        """Formats what each part predicts, by its name."""
        lines = {
            name: part.format_predictions(examples, select_part(name, outputs))
            for name, part in self.parts.items()
        }
        return [{name: lines[name][i] for name in lines} for i in range(len(examples))]

    def average(self, outputs: Sequence[Arrays]) -> Arrays:
        return {
            f"{name}.{k}": x
            for name, part in self.parts.items()
            for k, x in part.average([select_part(name, one) for one in outputs]).items()
        }


def _drop_unset(*sections: Mapping[str, Any] | None) -> dict[str, Any]:
    # A later section's value counts; None leaves it to the owner's default.
    every = [(name, x) for section in sections for name, x in (section or {}).items()]
    return {name: x for name, x in every if x is not None}


def has_places(arrays: Arrays) -> bool:
    """Returns whether a part's own arrays are of positions of the row."""
    return any("L" in parse_letters(name) for name in arrays if name not in ROWS)


def select_part(name: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arrays of a part, under the names that it gave them."""
    begin = f"{name}."
    return {k.removeprefix(begin): x for k, x in arrays.items() if k.startswith(begin)}


class Task(nn.Module):
    """Reads a row once, for the tasks that have labels of it.

    Attributes:
        parts: the tasks, whose encoder is `Given`.
        weights: of their losses.
    """

    backbone: nn.Module | None
    encoder: nn.Module
    parts: Mapping[str, nn.Module]
    weights: Mapping[str, float]

    def __call__(self, batch, *, train: bool):
        h_BLD = self.encoder(batch, train=train)
        metrics = {
            name: part(self._rows(name, batch, h_BLD), train=train)
            for name, part in self.parts.items()
        }
        sums = weigh_metrics(metrics, self.weights)
        return self.encoder.add_losses(sums, h_BLD, batch, train=train)

    def _rows(self, name: str, batch, h_BLD) -> dict[str, Any]:
        shared = {k: x for k, x in batch.items() if "." not in k}
        # The states in place of what was read: no part reads the row again.
        return {**shared, **select_part(name, batch), "h_BLD": h_BLD}

    def predict(self, batch):
        """Computes the outputs of all parts, as "intent.logits_BC"."""
        h_BLD = self.encoder(batch, train=False)
        return {
            f"{name}.{k}": x
            for name, part in self.parts.items()
            for k, x in part.predict(self._rows(name, batch, h_BLD)).items()
        }

    def flops(self, B: int, L: int) -> float:
        return encoders.training_flops(self.backbone, B, L)
