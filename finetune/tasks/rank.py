"""Ranking: candidates of a query are scored one by one, and trained to stand in the right order.

A row is a query with O of its candidates, each read as a pair of texts, query first.  Pairwise
losses follow Burges et al. 2005 (RankNet) and Herbrich et al. 2000, listwise ones Cao et al. 2007.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from finetune.inputs.rows import Row, RowBuilder
from finetune.metrics.ranking import GAINS, rank_scores
from finetune.tasks import choice
from modules.kernels.softmax import softmax as masked_softmax
from modules.layers import params
from modules.metrics import Sum
from pretrain.runtime.errors import UserError

Hand = tuple[dict, list[int]]  # an example, and which of its candidates


class Form:
    """Examples {"query": ..., "candidates": [...], "relevance": [...]} to rows, and back."""

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
            rows: of a query in training, at most; 0: so many that all candidates are read.
            ks, gain: of `ranking.rank_scores`.
            seed: of which candidates stand together in training.
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

    def kept(self) -> dict[str, Any]:
        """What another `Form` of the same task is made with."""
        return dict(
            options=self.options,
            rows=self.most,
            ks=self.ks,
            gain=self.gain,
            seed=self.seed,
        )

    def head(self) -> dict[str, Any]:
        """Fields of `Task` that follow from the data."""
        return dict(place=self.inputs.format.pool)

    def training(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """As `arrays`, but each row has a relevant candidate; queries that tell nothing are left
        out.

        Raises:
            UserError: no query has a relevant candidate and another.
        """
        hands: list[Hand] = []
        for number, example in enumerate(examples):
            relevance = np.maximum(example["relevance"] or [0.0], 0)
            if relevance.max() > relevance.min():
                rng = np.random.default_rng((self.seed, number))
                dealt = deal(relevance, self.options, rng)[: self.most or None]
                hands += [(example, numbers) for numbers in dealt]
        if not hands:
            raise UserError("no query of the training set has a relevant candidate and another")
        told = len({id(example) for example, _ in hands})
        if told < len(examples):
            self.notes.append(
                f"{len(examples) - told:,} queries have no relevant candidate, or no other: "
                "they are not trained on"
            )
        return self._arrays(hands)

    def arrays(self, examples: Sequence[dict]) -> dict[str, np.ndarray]:
        """tokens_BOL and the like of all candidates in their order, as many rows of a query as
        they need; there_BO; relevance_BO, NaN: not known."""
        return self._arrays([(x, hand) for x in examples for hand in self._hands(x)])

    def _hands(self, example: dict) -> list[list[int]]:
        numbers = list(range(len(example["candidates"])))
        return [numbers[at : at + self.options] for at in range(0, len(numbers), self.options)]

    def _arrays(self, hands: Sequence[Hand]) -> dict[str, np.ndarray]:
        texts = {x["query"] for x, _ in hands}
        texts |= {x["candidates"][i] for x, numbers in hands for i in numbers}
        tokens = dict(zip(sorted(texts), self.inputs.tokens(sorted(texts)), strict=True))
        rows, there_BO, relevance_BO = [], *np.zeros((2, len(hands), self.options), np.float32)
        for b, (example, numbers) in enumerate(hands):
            query = tokens[example["query"]]
            own = [self._row(query, tokens[example["candidates"][i]]) for i in numbers]
            rows += own + own[-1:] * (self.options - len(own))
            relevance = example["relevance"] or [math.nan] * len(example["candidates"])
            there_BO[b, : len(own)], relevance_BO[b, : len(own)] = 1, np.take(relevance, numbers)
        if cut := sum(row.cut > 0 for row in rows):
            self.notes.append(f"{cut:,} of {len(rows):,} rows were longer than {self.inputs.L}")
        made = choice.by_option(self.inputs.arrays(rows), self.options)
        return made | {"there_BO": there_BO > 0, "relevance_BO": relevance_BO}

    def _row(self, query: np.ndarray, candidate: np.ndarray) -> Row:
        """Too long a one loses the candidate's end; but a query has half of the row at most."""
        short = query[: self.inputs.L // 2]
        row = self.inputs.row([short, candidate], keep=[0])
        return row._replace(cut=row.cut + len(query) - len(short))

    def shown(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[list[float]]:
        """The scores of each query's candidates."""
        found, at = [], 0
        for example in examples:
            n = len(example["candidates"])
            rows = -(-n // self.options)
            found.append(outputs["logits_BO"][at : at + rows].ravel()[:n].astype(float).tolist())
            at += rows
        return found

    def scores(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> dict[str, float]:
        """Reciprocal rank, average precision, and at each of `ks`; see
        `finetune.metrics.ranking`."""
        relevances = [example["relevance"] for example in examples]
        return rank_scores(self.shown(examples, outputs), relevances, self.ks, self.gain)

    def lines(self, examples: Sequence[dict], outputs: dict[str, np.ndarray]) -> list[dict]:
        """Each query's scores in the order of its candidates, and their numbers, best first."""
        return [
            {"scores": own, "ranking": np.argsort(-np.array(own), kind="stable").tolist()}
            for own in self.shown(examples, outputs)
        ]


def deal(relevance: np.ndarray, size: int, rng: np.random.Generator) -> list[list[int]]:
    """Candidates' numbers in rows of at most `size`.

    Each candidate stands in a row, and those of each grade are spread over all rows; a relevant
    one is repeated where a row would be without.
    """
    drawn = rng.permutation(len(relevance))
    order = drawn[np.argsort(-relevance[drawn], kind="stable")].tolist()
    count = 1 if len(order) <= size else math.ceil(len(order) / (size - 1))
    rows = [order[r::count] for r in range(count)]
    relevant = [i for i in order if relevance[i] > 0]
    return [
        row if relevance[row[0]] > 0 else [relevant[r % len(relevant)], *row]
        for r, row in enumerate(rows)
    ]


# --- losses: scores, relevance and what is there [B, O], margin -> a loss of each row [B] ---------


def softmax(logits_BO, relevance_BO, there_BO, margin):
    """Cross entropy with the shares of the relevance."""
    del margin
    share_BO = relevance_BO / jnp.maximum(relevance_BO.sum(1, keepdims=True), 1e-9)
    return -(share_BO * jnp.where(there_BO, jax.nn.log_softmax(logits_BO), 0)).sum(1)


def listnet(logits_BO, relevance_BO, there_BO, margin):
    """Cross entropy of which candidate is first, by relevance and by score (Cao et al. 2007)."""
    del margin
    share_BO = masked_softmax(relevance_BO, there_BO)
    return -(share_BO * jnp.where(there_BO, jax.nn.log_softmax(logits_BO), 0)).sum(1)


def hinge(logits_BO, relevance_BO, there_BO, margin):
    """How much the lead of the more relevant lacks of the margin, the mean over pairs."""
    lead_BOO, pairs_BOO = leads(logits_BO, relevance_BO, there_BO)
    return _mean(jax.nn.relu(margin - lead_BOO), pairs_BOO)


def logistic(logits_BO, relevance_BO, there_BO, margin):
    """-log of the probability that the more relevant leads, the mean over pairs."""
    del margin
    lead_BOO, pairs_BOO = leads(logits_BO, relevance_BO, there_BO)
    return _mean(jax.nn.softplus(-lead_BOO), pairs_BOO)


def leads(logits_BO, relevance_BO, there_BO):
    """By how much each leads each other, and which are pairs: the first is more relevant."""
    logits_BO = jnp.where(there_BO, logits_BO, 0)
    pairs_BOO = relevance_BO[:, :, None] > relevance_BO[:, None]
    pairs_BOO &= there_BO[:, :, None] & there_BO[:, None]
    return logits_BO[:, :, None] - logits_BO[:, None], pairs_BOO


def _mean(x_BOO, pairs_BOO):
    return (x_BOO * pairs_BOO).sum((1, 2)) / jnp.maximum(pairs_BOO.sum((1, 2)), 1)


LOSSES: dict[str, Callable] = {
    "softmax": softmax,
    "listnet": listnet,
    "hinge": hinge,
    "logistic": logistic,
}


class Task(choice.Task):
    """`choice.Task` trained on the order of the options; rows in which nothing is more relevant
    than another count nothing.

    Attributes:
        loss: of `LOSSES`: "softmax" and "listnet" are listwise, "hinge" and "logistic" pairwise.
        margin: of the hinge.
    """

    loss: str = "softmax"
    margin: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        params.check_choice(self, "loss", tuple(LOSSES))

    def __call__(self, batch, *, train: bool):
        logits_BO, h_BLD, rows = self._outputs(batch, train=train)
        known_BO = batch["there_BO"] & ~jnp.isnan(batch["relevance_BO"])
        relevance_BO = jnp.where(known_BO, jnp.maximum(batch["relevance_BO"], 0), 0)
        lead_BOO, pairs_BOO = leads(logits_BO, relevance_BO, known_BO)
        weight_B = batch["weight_B"] * pairs_BOO.any((1, 2))
        loss_B = LOSSES[self.loss](logits_BO, relevance_BO, known_BO, self.margin)
        total, weight = (loss_B * weight_B).sum(), weight_B.sum()
        right_B, all_B = ((lead_BOO > 0) & pairs_BOO).sum((1, 2)), pairs_BOO.sum((1, 2))
        sums = {
            "loss": Sum(total, weight, train=True),
            "pairs_right": Sum((right_B * weight_B).sum(), (all_B * weight_B).sum(), "share"),
        }
        return self.along(sums, h_BLD, rows, train=train)
