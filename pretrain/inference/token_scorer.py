"""Scores the tokens of texts, and fills masks in, with what a run's objective has learned.

A causal model scores each token after those before it, in one reading.  Others predict it from
all of the rest of its row, one at a time: the sum is the pseudo-log-likelihood of Salazar et al.
2020 (arXiv 1910.14659).

    scorer = TokenScorer(load_run("runs/bert-mini"), Layout(make_mesh()))
    scorer.fill(["The [MASK] of the Union"], top=5)
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn

from modules.activation_sharding import sharding_context
from pretrain import objectives
from pretrain.checkpoint.named_leaves import nest
from pretrain.distributed.sharding import Layout
from pretrain.inference.embedding_batches import Row, RowBatcher
from pretrain.inference.run import Run
from pretrain.inference.trained_run import load_named_params
from pretrain.runtime.errors import UserError

MASKS = ("[MASK]", "<mask>")  # as texts may spell the mask, whatever the tokenizer does


class Score(NamedTuple):
    """Holds the tokens of a text and the log-likelihood of each.

    Attributes:
        nats: at most 0.
    """

    tokens: list[str]
    nats: list[float]

    @property
    def total(self) -> float:
        return sum(self.nats)

    @property
    def perplexity(self) -> float:
        """Returns the exponential of the mean loss of a token."""
        return float(np.exp(-self.total / max(len(self.nats), 1)))


class Filling(NamedTuple):
    """Holds a token that could stand at a mask, and its probability there."""

    token: str
    probability: float


class Query(NamedTuple):
    """Asks for tokens of a row.

    Attributes:
        ids: of the row, with its marks, [L].
        slots: positions that are predicted.
    """

    ids: np.ndarray
    slots: list[int]


class TokenScorer:
    """A run's objective, reading rows of text on all devices of a machine."""

    def __init__(self, run: Run, layout: Layout, *, params: Any = None, tokens: int = 8192):
        """Builds the run's objective, and restores its weights unless they are given.

        Args:
            params: of the objective, a tree; None: the run's.
            tokens: that one device reads at once, padding included.

        Raises:
            UserError: the run has no objective, or one that predicts no single tokens.
        """
        self.run, self.layout = run, layout
        self.objective = objectives.build_of_run(run)
        if not hasattr(self.objective, "slot_states"):
            name = run.config.objective.name
            raise UserError(
                f"this run was trained as {name!r}, which neither scores nor fills: it has vectors "
                "of texts (embed), and pretrain.evaluate gives its loss on a text; likelihoods are "
                "of GPT, BERT and XLNet"
            )
        if params is None:
            params = nest(load_named_params(run, layout)[0])
        self.params = params
        self.batcher = RowBatcher(run, layout.num_shards("B"), tokens=tokens, cut=False)
        self._read_nats = jax.jit(nn.apply(read_nats, self.objective))
        self._read_likeliest = jax.jit(
            nn.apply(read_likeliest, self.objective), static_argnames="top"
        )

    def score(self, texts: Sequence[str]) -> list[Score]:
        """Computes the log-likelihood of every token of each text.

        Raises:
            UserError: a text is longer than the model's rows.
        """
        encoded = [ids.tolist() for ids in self.run.tokenizer.encode(list(texts))]
        queries: list[Query] = []
        counts: list[int] = []
        for number, ids in enumerate(encoded):
            asked = list(self._list_queries(ids, number))
            queries += asked
            counts.append(len(asked))
        nats = iter(self._run(queries, self._read_nats))
        return [
            Score(
                [self.run.tokenizer.pieces[i] for i in ids],
                [float(x) for part in itertools.islice(nats, count) for x in part],
            )
            for ids, count in zip(encoded, counts, strict=True)
        ]

    def fill(self, texts: Sequence[str], top: int = 5) -> list[list[list[Filling]]]:
        """Predicts what stands at the masks of texts, spelled [MASK] or <mask>.

        Args:
            top: the likeliest tokens that are returned.

        Returns:
            For each text and each of its masks the likeliest tokens, the likeliest first.

        Raises:
            UserError: a text has no mask or is too long, there are not `top` tokens, or the model
                reads in one direction.
        """
        if not 0 < top <= self.run.tokenizer.V:
            raise UserError(f"top={top}: is how many tokens to return, of {self.run.tokenizer.V}")
        if self.objective.predicts_slots_together:
            raise UserError("this run's model sees nothing behind a mask: let it generate")
        mask = objectives.special_id(self.run.tokenizer.special, "mask")
        queries = [self._mask_query(text, mask, number) for number, text in enumerate(texts)]
        outputs = self._run(queries, functools.partial(self._read_likeliest, top=top))
        return [[self._name(*slot) for slot in zip(*output, strict=True)] for output in outputs]

    def _name(self, ids_K: np.ndarray, p_K: np.ndarray) -> list[Filling]:
        tokenizer = self.run.tokenizer
        names = [tokenizer.decode([int(i)]).strip() or tokenizer.pieces[int(i)] for i in ids_K]
        return [Filling(name, float(p)) for name, p in zip(names, p_K, strict=True)]

    def _list_queries(self, ids: list[int], number: int) -> Iterator[Query]:
        """Yields the queries that a text's tokens take: one for all, or one for each."""
        if self.objective.predicts_slots_together:
            # Its first token is predicted after the mark that ends the document before.
            row = self._check_length([self.run.tokenizer.special["eod"], *ids], number)
            if ids:
                yield Query(row, list(range(1, len(row))))
            return
        before = len(self.batcher.before)
        row = self._check_length([*self.batcher.before, *ids, *self.batcher.after], number)
        yield from (Query(row, [before + i]) for i in range(len(ids)))

    def _mask_query(self, text: str, mask: int, number: int) -> Query:
        spelled = [*MASKS, self.run.tokenizer.pieces[mask]]
        # The mask may be spelled in two ways, or as the vocabulary spells it.
        parts = re.split("|".join(map(re.escape, spelled)), text)
        if len(parts) < 2:
            raise UserError(f"text {number + 1} has no mask: write {MASKS[0]} where one stands")
        row, slots = list(self.batcher.before), []
        for place, ids in enumerate(self.run.tokenizer.encode([part.strip() for part in parts])):
            if place:
                slots.append(len(row))
                row.append(mask)
            row += ids.tolist()
        return Query(self._check_length([*row, *self.batcher.after], number), slots)

    def _check_length(self, ids: list[int], number: int) -> np.ndarray:
        if len(ids) > (most := self.batcher.longest):
            raise UserError(f"text {number + 1} has {len(ids)} tokens: the model reads {most}")
        return np.array(ids, np.int32)

    def _run(self, queries: Sequence[Query], program: Callable) -> list[Any]:
        """Runs `program` at the slots of all queries, in batches of rows of about one length."""
        outputs: list[Any] = [None] * len(queries)
        rows = [Row(i, [], query.ids, 0, 0) for i, query in enumerate(queries)]
        # Rows of a batch are about as long, and what is too large for the memory comes first.
        rows.sort(key=lambda row: -len(row.ids))
        while rows:
            full, part = self.batcher.batch_sizes(self.batcher.padded_length(rows))
            count = full if len(rows) >= full else part
            rows, batch = rows[count:], rows[:count]
            arrays = self._make_arrays(batch, [queries[row.number].slots for row in batch])
            placed = self.layout.shard_batch(arrays, len(arrays["tokens_BL"]))
            with sharding_context(self.layout):
                results = jax.device_get(program({"params": self.params}, placed))
            for i, row in enumerate(batch):
                n = len(queries[row.number].slots)
                outputs[row.number] = jax.tree.map(lambda x, i=i, n=n: x[i, :n], results)
        return outputs

    def _make_arrays(self, rows: list[Row], slots: list[list[int]]) -> dict[str, np.ndarray]:
        arrays = self.batcher.make_arrays(rows)
        arrays["tokens_BL"] = arrays.pop("ids_BL")
        # A power of two: rows with a few masks more share a program.
        P = 1 << (max(map(len, slots)) - 1).bit_length()
        arrays["slots_BP"] = np.zeros((len(arrays["tokens_BL"]), P), np.int32)
        # Rows that fill up the batch keep position 0.
        for row, of_row in zip(arrays["slots_BP"], slots, strict=False):
            row[:] = [*of_row, *[of_row[0]] * (P - len(of_row))]
        return arrays


def read_nats(objective: Any, batch: dict[str, jax.Array]) -> jax.Array:
    """Computes the log-likelihood of the tokens at the slots of rows, [B, P]."""
    h_BPD = objective.slot_states(batch)
    ids_BP = jax.numpy.take_along_axis(batch["tokens_BL"], batch["slots_BP"], 1)
    table_VD = objective.backbone.table()
    return objective.head.nats(h_BPD, ids_BP, table_VD, chunks=objective.loss_chunks)


def read_likeliest(
    objective: Any, batch: dict[str, jax.Array], top: int
) -> tuple[jax.Array, jax.Array]:
    """Computes the likeliest tokens at the slots of rows: ids and probabilities, [B, P, top]."""
    logits_BPV = objective.head.logits(objective.slot_states(batch), objective.backbone.table())
    p_BPK, ids_BPK = jax.lax.top_k(jax.nn.softmax(logits_BPV, axis=-1), top)
    return ids_BPK, p_BPK
