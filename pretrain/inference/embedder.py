"""Embeds sentences: many at a time, short ones together, each as if it were alone.

All of it is:

    run = load_run("runs/bert-mini")
    embedder = Embedder(run, Layout(make_mesh()), parse_layers("all", count=run.backbone.N + 1))
    for sentence in embedder([(0, ["The state of the Union", "We"])]):
        print(sentence.number, sentence.tokens, sentence.vectors.shape)
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from modules.activation_sharding import sharding_context
from modules.backbones import text_mask
from modules.masks import count_lengths
from pretrain.distributed.sharding import Layout
from pretrain.inference.embedding_inputs import SPELLED, Sentence, build_reader
from pretrain.inference.layer_selection import Choice
from pretrain.inference.length_buckets import list_lengths
from pretrain.inference.run import Run
from pretrain.inference.text_format import format_name, load_format
from pretrain.inference.throughput import Speed
from pretrain.inference.trained_run import load_backbone_params
from pretrain.runtime.errors import UserError

POOLS = ("", "mean", "first")
PART = 8  # so many times fewer rows are in a batch where fewer are left, or lengths differ much


class Row(NamedTuple):
    """A text ready to be read: its tokens between the marks of its system."""

    number: int
    tokens: list[str]
    ids: np.ndarray  # [L], with the marks: of the tokenizer, or of the block's own words
    words: int
    block: int


class Block(NamedTuple):
    """Rows of about one length together; what their ids mean if not the tokenizer's pieces."""

    batches: list[list[Row]]
    chars_VW: np.ndarray | None  # the spellings of its distinct words


class Embedder:
    """A run's backbone, reading blocks of texts on all devices of a machine.

    Rows are padded to one of few lengths: at most two programs are compiled for each of
    `lengths`, of which there are four for every doubling from 8 tokens to the longest row.  What
    a word is from its characters is found once for all its places in a block.

    Attributes:
        speed: of the last call so far.
        cuts, empty: how many texts were cut, and how many had no tokens.
    """

    def __init__(
        self,
        run: Run,
        layout: Layout,
        choice: Choice,
        *,
        params: Any = None,
        tokens: int = 8192,
        cut: bool = False,
        pool: str = "",
    ):
        """
        Args:
            params: of the backbone; None: the run's.
            tokens: that one device reads at once, padding included; no row is longer.
            cut: texts longer than the model's positions, or than `tokens`, lose their end.
            pool: one vector for a whole text: "mean" of all its positions and of the marks around
                it, or that of the "first"; "": a vector for every token.
        """
        self.pool = pool
        self.run, self.layout, self.choice, self.tokens, self.cut = run, layout, choice, tokens, cut
        self.params = load_backbone_params(run, layout)[0] if params is None else params
        self.read = build_reader(run)
        before, after, segments = load_format(format_name(run.config)).frame(run.tokenizer.special)
        self.before, self.after = self.read.marks(before), self.read.marks(after)
        self.after_segments = segments if any(segments) else []
        self.longest = min(getattr(run.backbone, "L", tokens), tokens)
        self.lengths = list_lengths(self.longest)
        self.speed, self.cuts, self.empty = Speed(), 0, 0
        self._programs = functools.cache(self._compile)

    def __call__(self, blocks: Iterable[tuple[int, list[str]]]) -> Iterator[Sentence]:
        """Each text's vectors, block by block, within a block in an order of its own.

        Args:
            blocks: texts, and the number of the first.

        Raises:
            UserError: a text is too long and not to be cut; it is named by its number + 1.
        """
        self.speed = Speed()
        ready = read_ahead(self._make_batches(*block) for block in blocks)
        waiting: tuple[list[Row], jax.Array] | None = None
        for batches, chars_VW in ready:
            words_VD = None if chars_VW is None else self._read_words(chars_VW)
            for rows in batches:
                # One batch ahead: the devices compute it while the host unpacks the one before.
                started = rows, self._start(rows, words_VD)
                if waiting:
                    yield from self._finish(*waiting)
                waiting = started
        if waiting:
            yield from self._finish(*waiting)

    # --- rows to batches ---------------------------------------------------------------------

    def _make_batches(self, first: int, texts: list[str]) -> Block:
        """Cuts texts into batches of rows of about one length, the longest first."""
        tokens, ids, chars_VW = self.read(texts)
        rows = [
            self._make_row(first, first + i, *parts)
            for i, parts in enumerate(zip(texts, tokens, ids, strict=True))
        ]
        rows.sort(key=lambda row: -len(row.ids))
        batches = []
        while rows:
            full, part = self._batch_sizes(L := self._padded_length(rows))
            # A full batch only of rows at least half as long as its first: else much is padding.
            alike = len(rows) >= full and 2 * len(rows[full - 1].ids) >= L
            rows, batch = rows[(n := full if alike else part) :], rows[:n]
            batches.append(batch)
        return Block(batches, chars_VW)

    def _make_row(
        self, block: int, number: int, text: str, tokens: list[str], ids: np.ndarray
    ) -> Row:
        room = self.longest - len(self.before) - len(self.after)
        if len(tokens) > room:
            if not self.cut:
                more = "" if self.longest < self.tokens else "raise --tokens, "
                raise UserError(
                    f"line {number + 1} has {len(tokens)} tokens, of which {room} can be read at "
                    f"once: {more}make it two lines, or take its beginning with --cut"
                )
            self.cuts += 1
        framed = np.concatenate([self.before, ids[:room], self.after])
        self.empty += not tokens
        return Row(number, tokens[:room], framed, len(text.split()), block)

    def _padded_length(self, rows: Sequence[Row]) -> int:
        """Returns the length that these rows, the longest first, are padded to."""
        return next(L for L in self.lengths if len(rows[0].ids) <= L)

    def _batch_sizes(self, L: int) -> tuple[int, int]:
        """Returns the rows of a full batch of this length, and of one of what is left."""
        shards = self.layout.num_shards("B")
        full = max(self.tokens // L, 1)
        return full * shards, -(-full // PART) * shards

    def _make_arrays(self, rows: list[Row], B: int, L: int, words_VD: Any) -> dict[str, np.ndarray]:
        """Fills the arrays that the backbone reads; the ids of padding do not matter."""
        ids_BL = np.zeros((B, L), np.int32)
        batch = {"valid_BL": np.zeros((B, L), bool)}
        if self.after_segments:
            batch["segments_BL"] = np.zeros((B, L), np.int32)
        for i, row in enumerate(rows):
            n = len(row.ids)
            ids_BL[i, :n] = row.ids
            batch["valid_BL"][i, :n] = True
            if self.after_segments:
                batch["segments_BL"][i, n - len(self.after) : n] = self.after_segments
        return batch | ({"ids_BL": ids_BL} if words_VD is None else {"x_BLD": words_VD[ids_BL]})

    # --- batches to vectors ------------------------------------------------------------------

    def _read_words(self, chars_VW: np.ndarray) -> np.ndarray:
        """Reads the distinct words of a block from their characters: [V, D]."""
        vectors, shards = [], self.layout.num_shards("B")
        while len(chars_VW):
            n = next((n for n in SPELLED if len(chars_VW) >= n * shards), SPELLED[-1]) * shards
            now, chars_VW = chars_VW[:n], chars_VW[n:]
            chars_BLW = np.zeros((n, 1, now.shape[1]), np.int32)
            chars_BLW[: len(now), 0] = now
            batch = self.layout.shard_batch({"chars_BLW": chars_BLW}, n)
            x_BLD = self._run(batch)
            vectors.append(np.asarray(x_BLD)[: len(now), 0])
        return np.concatenate(vectors)

    def _start(self, rows: list[Row], words_VD: np.ndarray | None) -> jax.Array:
        """Starts a batch on the devices, and the copy of its vectors to the host."""
        L = self._padded_length(rows)
        B = next(B for B in reversed(self._batch_sizes(L)) if len(rows) <= B)
        batch = self.layout.shard_batch(self._make_arrays(rows, B, L, words_VD), B)
        h = self._run(batch)
        h.copy_to_host_async()
        return h

    def _finish(self, rows: list[Row], h: jax.Array) -> Iterator[Sentence]:
        vectors, begin = np.asarray(h), len(self.before)
        for i, row in enumerate(rows):
            within = () if self.pool else (slice(begin, begin + len(row.tokens)),)
            row_vectors = vectors[(..., i, *within, slice(None))].astype(np.float32)
            sentence = Sentence(row.number, row.tokens, row_vectors, row.words, row.block)
            self.speed.add(sentence)
            yield sentence

    def _run(self, batch: dict[str, jax.Array]) -> jax.Array:
        shapes = tuple((name, x.shape, x.dtype) for name, x in batch.items())
        return self._programs(shapes)(self.params, batch)

    def _compile(self, shapes: tuple[tuple[str, tuple[int, ...], Any], ...]):
        with sharding_context(self.layout), self.speed.exclude_compiling():
            batch = {name: jax.ShapeDtypeStruct(*rest) for name, *rest in shapes}
            like = self.layout.add_shardings(batch)
            does = self._embed_words if "chars_BLW" in batch else self._forward
            out = jax.eval_shape(does, self.params, like)
            letters = ("NBD" if self.pool and does == self._forward else "NBLD")[-out.ndim :]
            place = NamedSharding(self.layout.mesh, self.layout.make_spec(letters, out.shape))
            return jax.jit(does, out_shardings=place).lower(self.params, like).compile()

    def _embed_words(self, params, batch: dict[str, jax.Array]):
        return self.run.backbone.apply({"params": params}, batch["chars_BLW"], method="embed")

    def _forward(self, params, batch: dict[str, jax.Array]):
        ids_BL, x_BLD, valid_BL, segments_BL = map(
            batch.get, ("ids_BL", "x_BLD", "valid_BL", "segments_BL")
        )
        out: Any = self.run.backbone.apply(
            {"params": params},
            ids_BL if x_BLD is None else x_BLD,
            mask=text_mask(self.run.backbone, lengths_B=count_lengths(valid_BL)),
            segments_BL=segments_BL,
            method="layer_states",
        )
        return self._pool(out.h, valid_BL)

    def _pool(self, h_NBLD, valid_BL):
        """Takes the chosen layers, and pools their positions where a pool is asked for."""
        h = self.choice(h_NBLD)
        if self.pool == "first":
            return h[..., 0, :]
        if self.pool == "mean":
            # At least 1: a row that fills up the batch has no valid position.
            share_BL1 = (valid_BL / jnp.maximum(valid_BL.sum(1, keepdims=True), 1))[..., None]
            return (h.astype(jnp.float32) * share_BL1).sum(-2)
        return h


def read_ahead(items: Iterator) -> Iterator:
    """Yields the same items, computing the next in a thread while one is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
