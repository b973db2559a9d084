"""Sentences to contextual vectors: many at a time, short ones together, each as if it were alone.

All of it is:

    run = finished.opened("runs/bert-mini")
    embedder = Embedder(run, Layout(make_mesh()), chosen("all", count=run.config.model.N + 1))
    for sentence in embedder([(0, ["The state of the Union", "We"])]):
        print(sentence.number, sentence.tokens, sentence.vectors.shape)
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from modules.placement import placing
from pretrain.data.characters import characters
from pretrain.data.tokenizers import Tokenizer
from pretrain.errors import UserError
from pretrain.finished import Run, backbone_params
from pretrain.framing import frame
from pretrain.sharding import Layout

SHORTEST = 8  # tokens that rows are padded to, at least
PART = 8  # what is left of a block goes in batches of so many times fewer rows


class Sentence(NamedTuple):
    """One text's number in its file, its tokens, and their vectors."""

    number: int
    tokens: list[str]
    vectors: np.ndarray  # float32 [layers, tokens, D], or [tokens, D] where layers became one
    words: int
    block: int  # number of the first text of its block


class Choice(NamedTuple):
    """Layers side by side, or added up with these weights; `flat`: the only one, by itself."""

    layers: tuple[int, ...]
    weights: tuple[float, ...] | None = None
    flat: bool = False

    def __call__(self, h_NBLD):
        if self.layers != (*range(len(h_NBLD)),):
            h_NBLD = h_NBLD[np.array(self.layers)]
        if self.weights is None:
            return h_NBLD[0] if self.flat else h_NBLD
        weights_N = np.array(self.weights, np.float32)
        exact = {"precision": "highest", "preferred_element_type": jnp.float32}
        return jnp.einsum("N,NBLD->BLD", weights_N, h_NBLD.astype(jnp.float32), **exact)


def chosen(layers: str, mix: str = "", *, count: int) -> Choice:
    """What "all", "top", "mean" or "0,2" means of so many layers, the tokens' own included.

    Args:
        mix: weights of a sum of these layers, one for each, taken as they are; "": no sum.

    Raises:
        UserError: there is no such layer, or there are not as many weights as layers.
    """
    even = (1 / count,) * count if layers == "mean" else None
    named = {"all": range(count), "top": [count - 1], "mean": range(count)}
    try:
        numbers = tuple(named[layers] if layers in named else map(int, layers.split(",")))
        weights = tuple(map(float, mix.split(","))) if mix else even
    except ValueError as error:
        raise UserError(
            f"--layers={layers} --mix={mix}: say all, top, mean or numbers like 0,2; and as "
            "weights numbers like 0.2,0.8"
        ) from error
    if not set(numbers) <= set(range(count)):
        raise UserError(f"--layers={layers}: this model has layers 0 to {count - 1}")
    if even and mix:
        raise UserError("--layers=mean has its weights: leave out --mix, or take --layers=all")
    if weights and len(weights) != len(numbers):
        raise UserError(f"--mix={mix}: {len(weights)} weights for {len(numbers)} layers")
    return Choice(numbers, weights, flat=layers != "all" and len(numbers) == 1)


class Speed:
    """How many sentences and words are done, and in what time besides compiling."""

    def __init__(self):
        self.sentences = self.words = 0
        self.compiling, self._start = 0.0, time.perf_counter()

    def add(self, sentence: Sentence) -> None:
        self.sentences += 1
        self.words += sentence.words

    @contextlib.contextmanager
    def pausing(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.compiling += time.perf_counter() - begun

    def __str__(self) -> str:
        seconds = max(time.perf_counter() - self._start - self.compiling, 1e-9)
        return (
            f"{self.sentences:,} sentences, {self.words:,} words: "
            f"{self.sentences / seconds:,.0f} sentences/s, {self.words / seconds:,.0f} words/s"
        )


class Row(NamedTuple):
    """A text ready to be read: its tokens between the marks of its system."""

    number: int
    tokens: list[str]
    ids: np.ndarray  # [L], or [L, W] of characters; with the marks
    words: int
    block: int


class Embedder:
    """A run's backbone, reading blocks of texts on all devices of a machine.

    Rows are padded to one of few lengths: at most two programs are compiled for each of
    `lengths`, of which there are four for every doubling from 8 tokens to the longest row.

    Attributes:
        speed: of the last call so far.
        cuts, empty: how many texts were cut, and how many had no tokens.
    """

    def __init__(
        self, run: Run, layout: Layout, choice: Choice, *, params: Any = None, tokens: int = 8192,
        cut: bool = False,
    ):  # fmt: skip
        """
        Args:
            params: of the backbone; None: the run's.
            tokens: that one device reads at once, padding included; no row is longer.
            cut: texts longer than the model's positions, or than `tokens`, lose their end.
        """
        self.run, self.layout, self.choice, self.tokens, self.cut = run, layout, choice, tokens, cut
        self.params = backbone_params(run, layout) if params is None else params
        self.frame = frame(run.config.objective.name)
        self.read = reader(run)
        self.before, self.after = map(self.read.marks, self.frame.ids(run.tokenizer.special))
        self.longest = min(getattr(run.backbone, "L", tokens), tokens)
        self.lengths = ladder(self.longest)
        self.speed, self.cuts, self.empty = Speed(), 0, 0
        self._programs = functools.cache(self._compiled)

    def __call__(self, blocks: Iterable[tuple[int, list[str]]]) -> Iterator[Sentence]:
        """Each text's vectors, block by block, within a block in an order of its own.

        Args:
            blocks: texts, and the number of the first.

        Raises:
            UserError: a text is too long and not to be cut; it is named by its number + 1.
        """
        self.speed = Speed()
        ready = read_ahead(self._batches(*block) for block in blocks)
        waiting: tuple[list[Row], jax.Array] | None = None
        for rows in itertools.chain.from_iterable(ready):
            started = rows, self._start(rows)
            if waiting:
                yield from self._finish(*waiting)
            waiting = started
        if waiting:
            yield from self._finish(*waiting)

    # --- rows to batches ---------------------------------------------------------------------

    def _batches(self, first: int, texts: list[str]) -> list[list[Row]]:
        """Rows of about one length together, the longest first."""
        read = self.read(texts)
        rows = [
            self._row(first, first + i, text, *each)
            for i, (text, each) in enumerate(zip(texts, read, strict=True))
        ]
        rows.sort(key=lambda row: -len(row.ids))
        batches = []
        while rows:
            full, part = self._rows(self._length(rows))
            rows, batch = rows[(n := full if len(rows) >= full else part) :], rows[:n]
            batches.append(batch)
        return batches

    def _row(self, block: int, number: int, text: str, tokens: list[str], ids: np.ndarray) -> Row:
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

    def _length(self, rows: Sequence[Row]) -> int:
        """What these rows, the longest first, are padded to."""
        return next(L for L in self.lengths if len(rows[0].ids) <= L)

    def _rows(self, L: int) -> tuple[int, int]:
        """Rows of a full batch of this length, and of one of what is left."""
        shards = self.layout.shards("B")
        full = max(self.tokens // L, 1)
        return full * shards, -(-full // PART) * shards

    def _arrays(self, rows: list[Row], B: int, L: int) -> dict[str, np.ndarray]:
        """The batch that the backbone reads; what it holds of padding does not matter."""
        more = self.before.shape[1:]
        tokens = np.zeros((B, L, *more), np.int32)
        batch = {"tokens_BLW" if more else "tokens_BL": tokens, "valid_BL": np.zeros((B, L), bool)}
        if self.frame.after_segments:
            batch["segments_BL"] = np.zeros((B, L), np.int32)
        for i, row in enumerate(rows):
            n = len(row.ids)
            tokens[i, :n] = row.ids
            batch["valid_BL"][i, :n] = True
            if self.frame.after_segments:
                batch["segments_BL"][i, n - len(self.after) : n] = self.frame.after_segments
        return batch

    # --- batches to vectors ------------------------------------------------------------------

    def _start(self, rows: list[Row]) -> jax.Array:
        """Has the devices begin; what they find comes to the host by itself."""
        L = self._length(rows)
        B = next(B for B in reversed(self._rows(L)) if len(rows) <= B)
        h = self._programs(B, L)(self.params, self.layout.put(self._arrays(rows, B, L), B))
        h.copy_to_host_async()
        return h

    def _finish(self, rows: list[Row], h: jax.Array) -> Iterator[Sentence]:
        vectors, begin = np.asarray(h), len(self.before)
        for i, row in enumerate(rows):
            own = vectors[..., i, begin : begin + len(row.tokens), :].astype(np.float32)
            sentence = Sentence(row.number, row.tokens, own, row.words, row.block)
            self.speed.add(sentence)
            yield sentence

    def _forward(self, params, batch: dict[str, jax.Array]):
        batch = dict(batch)
        valid_BL, segments_BL = batch.pop("valid_BL"), batch.pop("segments_BL", None)
        [tokens] = batch.values()
        more: dict[str, Any] = {} if segments_BL is None else {"segments_BL": segments_BL}
        apply = functools.partial(self.run.backbone.apply, {"params": params}, method="states")
        return self.choice(apply(tokens, valid_BL, **more))

    def _compiled(self, B: int, L: int):
        with placing(self.layout), self.speed.pausing():
            like = self.layout.like(jax.eval_shape(lambda: self._arrays([], B, L)))
            found = jax.eval_shape(self._forward, self.params, like)
            letters = "NBLD"[-len(found.shape) :]
            place = NamedSharding(self.layout.mesh, self.layout.spec(letters, found.shape))
            jit = jax.jit(self._forward, out_shardings=place)
            return jit.lower(self.params, like).compile()


def ladder(longest: int) -> list[int]:
    """8, 10, 12, 14, 16, 20, 24, 28, 32 ... and at last the longest itself."""
    steps = (SHORTEST // 4 * n << k for k in itertools.count() for n in (4, 5, 6, 7))
    return [*itertools.takewhile(lambda n: n < longest, steps), longest]


def read_ahead(items: Iterator) -> Iterator:
    """The same items, each made in a thread while the one before is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


# --- texts to what a backbone reads --------------------------------------------------------------


def reader(run: Run) -> "Pieces | Characters":
    """By what the backbone reads: ids, or words as characters."""
    example = run.backbone.example()
    if example.ndim == 2:
        return Pieces(run.tokenizer, run.backbone.V)
    return Characters(run.tokenizer, example.shape[2])


class Pieces:
    """Texts to the names and ids of their tokens; one that the model does not know is <unk>."""

    def __init__(self, tokenizer: Tokenizer, V: int):
        self.tokenizer, self.V = tokenizer, V

    def marks(self, ids: list[int]) -> np.ndarray:
        return np.array(ids, np.int32)

    def __call__(self, texts: list[str]) -> Iterator[tuple[list[str], np.ndarray]]:
        for ids in self.tokenizer.encode(texts):
            known = ids if (ids < self.V).all() else self._known(ids)
            yield [self.tokenizer.pieces[i] for i in ids], known

    def _known(self, ids: np.ndarray) -> np.ndarray:
        return np.where(ids < self.V, ids, self.tokenizer.special["unk"])


class Characters:
    """Texts to their words and the words' characters: none is unknown."""

    def __init__(self, tokenizer: Any, W: int):
        self.tokenizer, self.characters = tokenizer, functools.partial(characters, W=W)
        spelled = {name: tokenizer.pieces[i] for name, i in tokenizer.special.items()}
        self.meant = dict.fromkeys((spelled["bos"], spelled["eos"]), spelled["unk"])

    def marks(self, ids: list[int]) -> np.ndarray:
        return self.characters([self.tokenizer.pieces[i] for i in ids])

    def __call__(self, texts: list[str]) -> Iterator[tuple[list[str], np.ndarray]]:
        found = self.tokenizer.words(texts)
        # A word that is spelled like a mark is none.
        ids = self.characters([self.meant.get(word, word) for words in found for word in words])
        ends = np.cumsum([len(words) for words in found])
        yield from zip(found, np.split(ids, ends[:-1]), strict=True)
