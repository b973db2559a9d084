"""Ranks the candidates of a query, scored one by one and trained on their order.

A row is a query with O of its candidates, each read as a pair of texts, query first.  The losses
are those of `modules.losses.ranking`: listwise, pairwise, or by what a pair is worth in NDCG.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from finetune import encoders
from finetune.inputs.options import group_options
from finetune.inputs.rows import Row, RowBuilder
from finetune.inputs.texts import note_cuts
from finetune.metrics.ranking import GAINS, rank_scores
from finetune.tasks import Defaults
from finetune.tasks.classify import build_classifier
from finetune.tasks.option_scores import score_options
from modules import plugins
from modules.heads.classifier import Classifier
from modules.layers import params
from modules.losses.ranking import LOSSES, Constants, pairwise_margins
from modules.metrics import Sum
from pretrain.data.batches.shuffling import shuffle_array
from pretrain.runtime.errors import UserError

CandidateGroup = tuple[dict, list[int]]  # an example, and which of its candidates


class TaskData(Defaults):
    """Turns examples {"query", "candidates", "relevance"} into rows, and outputs into rankings."""

    example_fields: tuple[str, ...] = ("query", "candidates")

    def __init__(
        self,
        inputs: RowBuilder,
        examples: Sequence[dict],
        *,
        options: int = 8,
        rows: int = 0,
        ks: Sequence[int] = (1, 10),
        gain: str = "exponential",
        seed: int = 0,
    ):
        """
        Args:
            options: candidates of a row.
            rows: most of a query in training; 0: as many as its candidates need.
            ks, gain: of `ranking.rank_scores`.
            seed: of the candidates' random rows in training.
        """
        del examples
        if options < 2:
            raise UserError(
                f"task.options={options}: candidates are compared, so a row holds at least two"
            )
        if gain not in GAINS:
            raise UserError(f"task.gain={gain!r}: choose one of {', '.join(GAINS)}")
        self.inputs, self.options, self.most = inputs, options, rows
        self.ks, self.gain, self.seed = tuple(ks), gain, seed
        self.notes: list[str] = []

    def to_config(self) -> dict[str, Any]:
        return dict(
            options=self.options,
            rows=self.most,
            ks=self.ks,
            gain=self.gain,
            seed=self.seed,
        )

    def build_task(self, backbone, encoder, head: dict, loss: dict) -> "Task":
        classifier = build_classifier(backbone, encoder, self.inputs, 1, **head)
        return plugins.construct(Task, backbone, encoder, classifier, **name_loss(loss))

    def training_arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds arrays as `arrays` does, in which each row has a relevant candidate.

        Raises:
            UserError: no query has a relevant candidate and another.
        """
        groups: list[CandidateGroup] = []
        for number, example in enumerate(examples):
            relevance = np.maximum(example["relevance"] or [0.0], 0)
            if relevance.max() > relevance.min():  # else there is no order to learn
                # Keyed by the query's number: its rows do not depend on other queries.
                order = shuffle_array(np.arange(len(relevance)), self.seed, number)
                rows = group_candidates(relevance, self.options, order)[: self.most or None]
                groups += [(example, numbers) for numbers in rows]
        if not groups:
            raise UserError("no query of the training set has a relevant candidate and another")
        # By identity, as two queries may be equal.
        used = len({id(example) for example, _ in groups})
        if used < len(examples):
            self.notes.append(
                f"{len(examples) - used:,} queries have no relevant candidate, or no other: "
                "they are not trained on"
            )
        return self._arrays(groups)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """Builds rows of all candidates in their order, as many of a query as they need.

        Returns:
            tokens_BOL and the like; there_BO; relevance_BO, NaN: not known.
        """
        return self._arrays([(x, group) for x in examples for group in self._groups(x)])

    def _groups(self, example: dict) -> list[list[int]]:
        numbers = list(range(len(example["candidates"])))
        return [numbers[at : at + self.options] for at in range(0, len(numbers), self.options)]

    def _arrays(self, groups: Sequence[CandidateGroup]) -> dict[str, np.ndarray]:
        texts = {x["query"] for x, _ in groups}
        texts |= {x["candidates"][i] for x, numbers in groups for i in numbers}
        # Each text is cut into tokens once, however many rows it stands in.
        tokens = dict(zip(sorted(texts), self.inputs.tokens(sorted(texts)), strict=True))
        rows, there_BO, relevance_BO = [], *np.zeros((2, len(groups), self.options), np.float32)
        for b, (example, numbers) in enumerate(groups):
            query = tokens[example["query"]]
            pairs = [self._row(query, tokens[example["candidates"][i]]) for i in numbers]
            # Repeated, for one shape of all rows; `there_BO` leaves the repetitions out.
            rows += pairs + pairs[-1:] * (self.options - len(pairs))
            relevance = example["relevance"] or [math.nan] * len(example["candidates"])
            there_BO[b, : len(pairs)] = 1
            relevance_BO[b, : len(pairs)] = np.take(relevance, numbers)
        self.notes += note_cuts(rows, self.inputs.L)
        grouped = group_options(self.inputs.arrays(rows), self.options)
        return grouped | {"there_BO": there_BO > 0, "relevance_BO": relevance_BO}

    def _row(self, query: np.ndarray, candidate: np.ndarray) -> Row:
        """Frames a pair; too long a one loses the candidate's end, and a query has half at most."""
        short = query[: self.inputs.L // 2]
        row = self.inputs.row([short, candidate], keep=[0])
        return row._replace(cut=row.cut + len(query) - len(short))

    def candidate_scores(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[list[float]]:
        """Returns the scores of each query's candidates."""
        scores, at = [], 0
        for example in examples:
            n = len(example["candidates"])
            rows = -(-n // self.options)
            scores.append(outputs["logits_BO"][at : at + rows].ravel()[:n].astype(float).tolist())
            at += rows
        return scores

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        relevances = [example["relevance"] for example in examples]
        return rank_scores(self.candidate_scores(examples, outputs), relevances, self.ks, self.gain)

    def format_predictions(
        self, examples: Sequence[dict], outputs: dict[str, np.ndarray]
    ) -> list[dict]:
        return [
            # Stable: of equal scores the earlier candidate comes first.
            {"scores": scores, "ranking": np.argsort(-np.array(scores), kind="stable").tolist()}
            for scores in self.candidate_scores(examples, outputs)
        ]


def name_loss(loss: dict) -> dict:
    """Returns the fields of a section `loss` as those of a `Task`, whose `loss` is its name."""
    return {"loss" if field == "name" else field: x for field, x in loss.items()}


def group_candidates(relevance: np.ndarray, size: int, shuffled: np.ndarray) -> list[list[int]]:
    """Puts candidates' numbers into rows of at most `size`, of which each has a relevant one.

    Args:
        shuffled: all candidates' numbers in the order in which those of a grade are spread.
    """
    order = shuffled[np.argsort(-relevance[shuffled], kind="stable")].tolist()
    # With size - 1 a row has room for the relevant candidate that it may lack.
    count = 1 if len(order) <= size else math.ceil(len(order) / (size - 1))
    # By turns from the most relevant on: those of each grade are spread over all rows.
    rows = [order[r::count] for r in range(count)]
    relevant = [i for i in order if relevance[i] > 0]
    return [
        row if relevance[row[0]] > 0 else [relevant[r % len(relevant)], *row]
        for r, row in enumerate(rows)
    ]


class Task(nn.Module):
    """Scores candidates, trained on their order.

    Attributes:
        loss: of `modules.losses.ranking.LOSSES`.
        margin, sigma, mu: of its `Constants`.
    """

    backbone: nn.Module | None
    encoder: nn.Module
    head: Classifier | None
    loss: str = "softmax"
    margin: float = Constants().margin
    sigma: float = Constants().sigma
    mu: float = Constants().mu

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "loss", tuple(LOSSES))

    def __call__(self, batch, *, train: bool):
        logits_BO, h_BLD, rows = self.score(batch, train=train)
        known_BO = batch["there_BO"] & ~jnp.isnan(batch["relevance_BO"])
        # TREC judges spam below 0: no more irrelevant than the rest.
        relevance_BO = jnp.where(known_BO, jnp.maximum(batch["relevance_BO"], 0), 0)
        margin_BOO, pairs_BOO = pairwise_margins(logits_BO, relevance_BO, known_BO)
        # Without a pair there is no order to learn; a softmax would pull scores together.
        weight_B = batch["weight_B"] * pairs_BOO.any((1, 2))
        constants = Constants(self.margin, self.sigma, self.mu)
        loss_B = LOSSES[self.loss](logits_BO, relevance_BO, known_BO, constants)
        total, weight = (loss_B * weight_B).sum(), weight_B.sum()
        right_B, all_B = ((margin_BOO > 0) & pairs_BOO).sum((1, 2)), pairs_BOO.sum((1, 2))
        metrics = {
            "loss": Sum(total, weight, train=True),
            "pairs_right": Sum((right_B * weight_B).sum(), (all_B * weight_B).sum(), "share"),
        }
        return self.encoder.add_losses(metrics, h_BLD, rows, train=train)

    def score(self, batch, *, train: bool):
        """Scores the candidates, see `finetune.tasks.option_scores`."""
        assert self.head is not None
        return score_options(self.encoder, self.head, batch, train=train)

    def predict(self, batch):
        return {"logits_BO": self.score(batch, train=False)[0]}

    def flops(self, B: int, L: int) -> float:
        return encoders.training_flops(self.backbone, B, L)
