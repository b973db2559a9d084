"""Multiple choice: each option is read behind what all share, and the best of them is told.

    BERT     [CLS] passage [SEP] question option [SEP]
    XLNet    passage <sep> question option <sep> <cls>
    GPT      <start> passage question <delimiter> option <extract>

An option is a row by itself that sees no other; a softmax over the options is trained.  Devlin et
al. 2019, section 4.4; XLNet's run_race.py; Radford et al. 2018, section 3.3.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from finetune.inputs.rows import Row, RowBuilder, truncate_lengths
from finetune.metrics import classification
from finetune.model.encoder import folded
from finetune.tasks import classify
from modules.metrics import Sum


class Form:
    """Examples {"texts": [...], "choices": [...], "label": number} to rows, and back."""

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
            gap: where the last text has this, the option takes its place (RACE: "_"), unless the
                format reads question and option apart (GPT).  "": it stands behind the text.
            options: of a row, at least; as many as an example has, if that is more.
        """
        self.inputs, self.gap = inputs, gap
        self.options = most([options, 2], examples)
        self.notes: list[str] = []

    def kept(self) -> dict[str, Any]:
        """What another `Form` of the same task is made with."""
        return dict(gap=self.gap, options=self.options)

    def head(self) -> dict[str, Any]:
        """Fields of `Task` that follow from the data."""
        return dict(place=self.inputs.format.pool)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """tokens_BOL and the like; there_BO: which options there are; label_B, -1: not known."""
        options = most([self.options], examples)
        rows, there_BO = self.rows(examples, options), np.zeros((len(examples), options), bool)
        for there_O, example in zip(there_BO, examples, strict=True):
            there_O[: len(example["choices"])] = True
        if cut := sum(row.cut > 0 for row in rows):
            self.notes.append(f"{cut:,} of {len(rows):,} rows were longer than {self.inputs.L}")
        label_B = [-1 if x["label"] is None else x["label"] for x in examples]
        made = by_option(self.inputs.arrays(rows), options)
        return made | {"there_BO": there_BO, "label_B": np.array(label_B, np.int32)}

    def rows(self, examples: Sequence[dict], options: int) -> list[Row]:
        """So many of each example; where it has fewer, its last stands for the others."""
        parts = [self.texts(example) for example in examples]
        tokens = iter(self.inputs.tokens([x for front, ends in parts for x in (*front, *ends)]))
        rows = []
        for front, ends in parts:
            shared = [next(tokens) for _ in front]
            own = [self.row(shared, next(tokens)) for _ in ends]
            rows += own + own[-1:] * (options - len(own))
        return rows

    def texts(self, example: dict) -> tuple[list[str], list[str]]:
        """What all options share, and how each goes on."""
        (*front, last), choices = example["texts"], example["choices"]
        if self.apart:
            return [*front, f" {last}" if front else last], choices
        if self.gap and self.gap in last:
            return front, [last.replace(self.gap, choice) for choice in choices]
        return (front, [f"{last} {choice}" for choice in choices]) if front else ([last], choices)

    @property
    def apart(self) -> bool:
        """Whether a mark stands between question and option, and none before the question."""
        return self.inputs.format.separate_choice

    def row(self, front: list[np.ndarray], end: np.ndarray) -> Row:
        """One option's; too long a one loses the end of the passage first."""
        parts = [*front, end]
        texts = 2 if self.apart else len(parts)
        room = self.inputs.L - len(self.inputs.row([end[:0]] * texts).ids)
        keep = range(len(parts))[-2 if self.apart and len(front) > 1 else -1 :]
        kept, cut = truncate_lengths([len(x) for x in parts], room, keep)
        parts = [x[:n] for x, n in zip(parts, kept, strict=True)]
        if self.apart:
            parts = [np.concatenate(parts[:-1]), parts[-1]]
        return self.inputs.row(parts)._replace(cut=cut)

    def shown(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Each example's scores of its own options."""
        pairs = zip(outputs["logits_BO"].astype(np.float64), examples, strict=True)
        return [logits_O[: len(example["choices"])] for logits_O, example in pairs]

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """The share of examples whose right option is told."""
        told = [logits_O.tolist() for logits_O in self.shown(examples, outputs)]
        return {"accuracy": classification.choice_accuracy(told, [x["label"] for x in examples])}

    def lines(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[dict]:
        """The number of the option told of each example, from 0, and the probability of each."""
        found = []
        for logits_O in self.shown(examples, outputs):
            share_O = np.exp(logits_O - logits_O.max())
            share_O /= share_O.sum()
            found.append(
                {"label": int(logits_O.argmax()), "probabilities": share_O.round(6).tolist()}
            )
        return found


def most(least: list[int], examples: Sequence[dict]) -> int:
    """The most options there are, or what is said."""
    return max(least + [len(example["choices"]) for example in examples])


def by_option(made: dict[str, np.ndarray], options: int) -> dict[str, np.ndarray]:
    """Rows tokens_BL, so many of each example in turn, as tokens_BOL: what `folded` undoes."""
    return {
        name.replace("_B", "_BO", 1): x.reshape(-1, options, *x.shape[1:])
        for name, x in made.items()
    }


class Task(classify.Task):
    """`classify.Task` with one number for each option, and a softmax over these.

    `weights` are of classes, and there are none here.
    """

    C: int = 1

    def _outputs(self, batch, *, train: bool):
        """(logits [B, O], states, the folded batch); an option that is not there cannot win."""
        rows, options = folded(batch)
        h_BLD = self.states(rows, train=train)
        logits_B1 = self.head(h_BLD, rows["valid_BL"], self.backbone, 1, train=train)
        there_BO = batch["there_BO"]
        lowest = jnp.finfo(logits_B1.dtype).min
        logits_BO = jnp.where(there_BO, logits_B1.reshape(-1, options), lowest)
        real_B = (batch["weight_B"][:, None] * there_BO).reshape(-1)
        return logits_BO, h_BLD, rows | {"weight_B": real_B}

    def losses(self, logits_BO, label_B, weight_B):
        log_BO = jax.nn.log_softmax(logits_BO)
        own_B = jnp.take_along_axis(log_BO, label_B[:, None], axis=1)[:, 0]
        hits_B = logits_BO.argmax(-1) == label_B
        weight = weight_B.sum()
        return {
            "loss": Sum(-(own_B * weight_B).sum(), weight, train=True),
            "accuracy": Sum((hits_B * weight_B).sum(), weight, "share"),
        }

    def predict(self, batch):
        """Scores of the options."""
        return {"logits_BO": self._outputs(batch, train=False)[0]}
