"""Chooses among options, each read behind the texts that all share.

    BERT     [CLS] passage [SEP] question option [SEP]
    XLNet    passage <sep> question option <sep> <cls>
    GPT      <start> passage question <delimiter> option <extract>

An option is a row by itself that sees no other; a softmax over the options is trained.  Devlin et
al. 2019, section 4.4; XLNet's run_race.py; Radford et al. 2018, section 3.3.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from finetune import encoders
from finetune.inputs.options import group_options
from finetune.inputs.rows import Row, RowBuilder, truncate_lengths
from finetune.inputs.texts import note_cuts
from finetune.metrics import classification
from finetune.tasks import Defaults
from finetune.tasks.classify import build_classifier
from finetune.tasks.option_scores import score_options
from modules import plugins
from modules.heads.classifier import Classifier
from modules.metrics import Sum


class TaskData(Defaults):
    """Turns examples {"texts", "choices", "label": number} into rows, and outputs into choices."""

    example_fields = ("texts", "choices")

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        gap: str = "",
        options: int = 0,
    ):
        """
        Args:
            gap: the option replaces this in the last text (RACE: "_"), unless the format
                separates question and option (GPT); "": it stands behind the text.
            options: least of a row; more where an example has more.
        """
        self.inputs, self.gap = inputs, gap
        # Two at least: the softmax of a single option has no gradient.
        self.options = most_options([options, 2], examples)
        self.notes: list[str] = []

    def to_config(self) -> dict[str, Any]:
        return dict(gap=self.gap, options=self.options)

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        classifier = build_classifier(backbone, encoder, self.inputs, 1, **head)
        return plugins.construct(Task, backbone, encoder, classifier, **loss)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds tokens_BOL and the like; there_BO, the real options; label_B, -1: not known."""
        options = most_options([self.options], examples)
        rows, there_BO = self.rows(examples, options), np.zeros((len(examples), options), bool)
        for there_O, example in zip(there_BO, examples, strict=True):
            there_O[: len(example["choices"])] = True
        self.notes += note_cuts(rows, self.inputs.L)
        label_B = [-1 if x["label"] is None else x["label"] for x in examples]
        grouped = group_options(self.inputs.arrays(rows), options)
        return grouped | {"there_BO": there_BO, "label_B": np.array(label_B, np.int32)}

    def rows(self, examples: Sequence[dict], options: int) -> list[Row]:
        """Frames `options` rows of each example, repeating its last option."""
        parts = [self.texts(example) for example in examples]
        tokens = iter(self.inputs.tokens([x for front, ends in parts for x in (*front, *ends)]))
        rows = []
        for front, ends in parts:
            shared = [next(tokens) for _ in front]
            filled = [self.row(shared, next(tokens)) for _ in ends]
            # Repeated, for one shape of all examples; `there_BO` keeps repetitions from winning.
            rows += filled + filled[-1:] * (options - len(filled))
        return rows

    def texts(self, example: dict) -> tuple[list[str], list[str]]:
        """Splits an example into the texts that all options share, and the last text of each."""
        (*front, last), choices = example["texts"], example["choices"]
        if self.inputs.format.separate_choice:
            # The format joins passage and question to one text: a blank is to part them.
            return [*front, f" {last}" if front else last], choices
        if self.gap and self.gap in last:
            return front, [last.replace(self.gap, choice) for choice in choices]
        return (front, [f"{last} {choice}" for choice in choices]) if front else ([last], choices)

    def row(self, front: list[np.ndarray], end: np.ndarray) -> Row:
        """Frames one option; too long a row loses the end of the passage first."""
        is_separate = self.inputs.format.separate_choice
        parts = [*front, end]
        texts = 2 if is_separate else len(parts)
        room = self.inputs.L - len(self.inputs.row([end[:0]] * texts).ids)
        keep = range(len(parts))[-2 if is_separate and len(front) > 1 else -1 :]
        lengths, cut = truncate_lengths([len(x) for x in parts], room, keep)
        parts = [x[:n] for x, n in zip(parts, lengths, strict=True)]
        if is_separate:
            parts = [np.concatenate(parts[:-1]), parts[-1]]
        return self.inputs.row(parts)._replace(cut=cut)

    def option_logits(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Returns each example's logits of its own options."""
        pairs = zip(outputs["logits_BO"].astype(np.float64), examples, strict=True)
        return [logits_O[: len(example["choices"])] for logits_O, example in pairs]

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        logits = [logits_O.tolist() for logits_O in self.option_logits(examples, outputs)]
        return {"accuracy": classification.choice_accuracy(logits, [x["label"] for x in examples])}

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        lines = []
        for logits_O in self.option_logits(examples, outputs):
            # Less the highest, as exp of a large logit overflows.
            share_O = np.exp(logits_O - logits_O.max())
            share_O /= share_O.sum()
            lines.append(
                {"label": int(logits_O.argmax()), "probabilities": share_O.round(6).tolist()}
            )
        return lines


def most_options(least: Sequence[int], examples: Sequence[dict]) -> int:
    return max([*least, *(len(example["choices"]) for example in examples)])


class Task(nn.Module):
    """Scores each option, trained by the cross entropy of the right one."""

    backbone: nn.Module
    encoder: nn.Module
    head: Classifier

    def __call__(self, batch, *, train: bool):
        logits_BO, h_BLD, rows = score_options(self.encoder, self.head, batch, train=train)
        # Not known is -1: whichever option is read for it weighs nothing.
        label_B = jnp.maximum(batch["label_B"], 0)
        weight_B = batch["weight_B"] * (batch["label_B"] >= 0)
        nats_B = optax.softmax_cross_entropy_with_integer_labels(logits_BO, label_B)
        hits_B = logits_BO.argmax(-1) == label_B
        weight = weight_B.sum()
        metrics = {
            "loss": Sum((nats_B * weight_B).sum(), weight, train=True),
            "accuracy": Sum((hits_B * weight_B).sum(), weight, "share"),
        }
        return self.encoder.add_losses(metrics, h_BLD, rows, train=train)

    def predict(self, batch):
        return {"logits_BO": score_options(self.encoder, self.head, batch, train=False)[0]}

    def flops(self, B: int, L: int) -> float:
        return encoders.training_flops(self.backbone, B, L)
