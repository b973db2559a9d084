"""Embeds sentences: many at a time, short ones together, each as if it were alone.

All of it is:

    run = load_run("runs/bert-mini")
    embedder = Embedder(run, Layout(make_mesh()), parse_layers("all", count=run.backbone.N + 1))
    for sentence in embedder.read(["The state of the Union", "We"]):
        print(sentence.number, sentence.tokens, sentence.vectors.shape)
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from modules.activation_sharding import sharding_context
from modules.backbones import has_unequal_layers, text_mask
from modules.layers import pooling
from modules.masks import count_lengths
from pretrain.distributed.sharding import Layout
from pretrain.inference.embedding_batches import Row, RowBatcher
from pretrain.inference.embedding_inputs import SPELLED, Sentence
from pretrain.inference.layer_selection import Choice, check_pooler
from pretrain.inference.run import Run
from pretrain.inference.throughput import Speed
from pretrain.inference.trained_run import load_backbone_params
from pretrain.runtime.sections import name_section


class Embedder:
    """A run's backbone, reading blocks of texts on all devices of a machine.

    Attributes:
        batcher: of rows; it counts the texts that were cut.
        speed: of the last call so far.
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
        normalize: bool = False,
        marks: bool = False,
    ):
        """
        Args:
            params: of the backbone; None: the run's.
            tokens: that one device reads at once, padding included; no row is longer.
            cut: texts longer than positions, or than `tokens`, lose their end.
            pool: one vector for a whole text: the "mean" of all its positions, marks included, the
                "first" or "last", or the backbone's "pooler" of the first; "": one for every token.
            normalize: vectors are divided by their length.
            marks: those around a text have vectors as its tokens do.

        Raises:
            UserError: the backbone has no pooler.
        """
        self.run, self.layout, self.choice = run, layout, choice
        self.pool, self.normalize = pool, normalize
        check_pooler(run.backbone, pool)
        self.params = load_backbone_params(run, layout)[0] if params is None else params
        self.batcher = RowBatcher(run, layout.num_shards("B"), tokens=tokens, cut=cut, marks=marks)
        self.speed = Speed()
        self._programs = functools.cache(self._compile)

    def __call__(self, blocks: Iterable[tuple[int, list[str]]]) -> Iterator[Sentence]:
        """Embeds texts block by block, within a block in an order of its own.

        Args:
            blocks: texts, and the number of the first.

        Raises:
            UserError: a text is too long and not to be cut; it is named by its number + 1.
        """
        self.speed = Speed()
        ready = read_ahead(self.batcher.make_block(*block) for block in blocks)
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

    def read(self, texts: Sequence[str]) -> list[Sentence]:
        """Embeds texts as one block, and returns them in their order."""
        return sorted(self([(0, list(texts))]), key=lambda sentence: sentence.number)

    def _read_words(self, chars_VW: np.ndarray) -> np.ndarray:
        # Each distinct word is computed from its characters once for all its places in a block.
        vectors, shards = [], self.layout.num_shards("B")
        while len(chars_VW):
            n = next((n for n in SPELLED if len(chars_VW) >= n * shards), SPELLED[-1]) * shards
            now, chars_VW = chars_VW[:n], chars_VW[n:]
            chars_BLW = np.zeros((n, 1, now.shape[1]), np.int32)
            chars_BLW[: len(now), 0] = now
            x_BLD = self._run(self.layout.shard_batch({"chars_BLW": chars_BLW}, n))
            vectors.append(np.asarray(x_BLD)[: len(now), 0])
        return np.concatenate(vectors)

    def _start(self, rows: list[Row], words_VD: np.ndarray | None) -> jax.Array:
        """Starts a batch on the devices, and the copy of its vectors to the host."""
        arrays = self.batcher.make_arrays(rows, words_VD)
        h = self._run(self.layout.shard_batch(arrays, len(arrays["valid_BL"])))
        h.copy_to_host_async()
        return h

    def _finish(self, rows: list[Row], h: jax.Array) -> Iterator[Sentence]:
        vectors = np.asarray(h)
        for i, row in enumerate(rows):
            within = () if self.pool else (self.batcher.slice_text(row),)
            row_vectors = vectors[(..., i, *within, slice(None))].astype(np.float32)
            sentence = Sentence(row.number, row.tokens, row_vectors, row.words, row.block)
            self.speed.add(sentence)
            yield sentence

    def _run(self, batch: dict[str, jax.Array]) -> jax.Array:
        # At most two programs for each length that rows are padded to: full batches and rests.
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
        # Where layers have different widths and cannot be stacked, a call returns the last.
        out: Any = self.run.backbone.apply(
            {"params": params},
            ids_BL if x_BLD is None else x_BLD,
            mask=text_mask(self.run.backbone, lengths_B=count_lengths(valid_BL)),
            segments_BL=segments_BL,
            **dict(train=False) if self._reads_top else dict(method="layer_states"),
        )
        h = self._pool(params, out.h if self._reads_top else self.choice(out.h), valid_BL)
        if not self.normalize:
            return h
        # A zero vector, of a text without tokens, stays zero.
        h = h.astype(jnp.float32)
        return h / jnp.maximum(jnp.linalg.norm(h, axis=-1, keepdims=True), 1e-12)

    @property
    def _reads_top(self) -> bool:
        backbone = self.run.backbone
        return has_unequal_layers(backbone) and self.choice.is_top(backbone.N + 1)

    def _pool(self, params, h, valid_BL):
        if not self.pool:
            return h
        pool = pooling.PLAIN["first" if self.pool == "pooler" else self.pool]
        # Layers side by side are pooled each by itself.
        pool = pool if h.ndim == 3 else jax.vmap(pool, (0, None))
        pooled = pool(h.astype(jnp.float32), valid_BL)
        if self.pool == "pooler":
            return self.run.backbone.apply({"params": params}, pooled, method="pool")
        return pooled


def check_layers(backbone: Any, choice: Choice) -> None:
    """Raises a UserError if layers are read together that are not equally wide."""

    # Traced by eval_shape: the shapes clash without any weights or arithmetic.
    def read():
        mask = text_mask(backbone)
        rng, tokens = jax.random.key(0), backbone.example()
        return backbone.init(rng, tokens, mask=mask, method="layer_states")

    if not choice.is_top(backbone.N + 1):
        with name_section("model"):
            jax.eval_shape(read)


def read_ahead(items: Iterator) -> Iterator:
    # In a thread, while one is used: the devices need not wait until the next is cut into rows.
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item
