"""Generates texts with a causal model: many at a time, in pieces as they come.

All of it is:

    writer = Writer(load_run("runs/gpt2-mini"), Layout(make_mesh()))
    for piece in writer.generate(["The state of", "We"], tokens=50):
        print(piece.row, piece.text)
"""

import functools
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from modules.activation_sharding import sharding_context
from modules.layers.attention import KVCache
from modules.layers.rnn import State
from modules.masks import Mask
from pretrain.data.tokenizers import Tokenizer
from pretrain.distributed.sharding import Layout
from pretrain.inference.run import Run
from pretrain.inference.sampling import Sampler
from pretrain.inference.text_format import load_format
from pretrain.inference.trained_run import load_backbone_params, load_head_params
from pretrain.runtime.errors import UserError


class Piece(NamedTuple):
    """Holds the next part of a row's text, and whether it is the last."""

    row: int
    text: str
    last: bool


def join_pieces(pieces: Iterable[Piece], count: int) -> list[str]:
    """Joins the pieces of `count` rows to their texts."""
    texts = [""] * count  # rows grow in turn
    for row, text, _ in pieces:
        texts[row] += text
    return texts


class Speed:
    """Counts the tokens of prompts read and of texts written, and the time of both."""

    def __init__(self, read: int):
        self.read, self.written = read, 0
        self.reading = self.writing = 0.0
        self._start = time.perf_counter()

    def end_prompts(self) -> None:
        self.reading = time.perf_counter() - self._start

    def count_written(self, tokens: int) -> None:
        self.written += tokens
        self.writing = time.perf_counter() - self._start - self.reading

    def __str__(self) -> str:
        parts = ("read", self.read, self.reading), ("wrote", self.written, self.writing)
        return ", ".join(
            f"{verb} {count:,} tokens at {count / max(seconds, 1e-9):,.0f} tokens/s"
            for verb, count, seconds in parts
        )


class Row:
    """One text as it grows: how much of it can be shown already."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: list[int], tokens: int, stops: Sequence[str] = ()
    ):
        self.tokenizer, self.ids, self.left, self.stops = tokenizer, list(prompt), tokens, stops
        self.begin = len(tokenizer.decode(prompt))
        self.shown = 0
        self.done = False

    def add(self, token: int) -> str:
        """Adds a token, and returns the text that can be shown now."""
        self.left -= 1
        ended = token == self.tokenizer.special["eod"]
        if not ended:
            self.ids.append(token)
        # Decoded whole: how a piece reads may depend on the one before it.
        text = self.tokenizer.decode(self.ids)[self.begin :]
        ends = [at for stop in self.stops if (at := text.find(stop)) >= 0]
        self.done = ended or bool(ends) or not self.left
        if ends:
            text = text[: min(ends)]
        elif not self.done:
            text = self._cut_unsettled(text)
        new = text[self.shown :]
        self.shown += len(new)
        return new

    def _cut_unsettled(self, text: str) -> str:
        """Cuts half a character, or the beginning of a stop string, from the end of a text."""
        # Byte-level pieces may end inside a character, which decodes to U+FFFD until the rest.
        text = text.rstrip("\ufffd")
        starts = [stop[:n] for stop in self.stops for n in range(1, len(stop))]
        return text[: len(text) - max((len(b) for b in starts if text.endswith(b)), default=0)]


class Read(NamedTuple):
    """Holds what each row goes on with: a token, and the memory of the `length_B` tokens before."""

    tokens_B1: jax.Array
    cache: Any
    length_B: jax.Array


class Writer:
    """A causal model that goes on from what it is given, many texts at a time.

    Attributes:
        speed: of the latest texts, without compiling.
    """

    def __init__(
        self, run: Run, layout: Layout, sampler: Sampler | None = None, params: Any = None
    ):
        """Restores the weights, unless they are given.

        Args:
            layout: the devices to work on.
            sampler: how tokens are chosen.
            params: {"backbone": ..., "head": ...}, laid out so; None: those of the run's newest
                checkpoint.

        Raises:
            UserError: the run's model cannot read on token by token, or it has no checkpoint.
        """
        if not _can_read_on(run.backbone):
            name = run.config.model.name
            raise UserError(f"this run's model, {name}, cannot generate: {_refuse(run.backbone)}")
        if name := run.config.get("text_format"):
            load_format(name).require_forward("texts that go on")
        self.run, self.layout, self.sampler = run, layout, sampler or Sampler()
        if params is None:
            backbone, _ = load_backbone_params(run, layout)
            params = {"backbone": backbone, "head": load_head_params(run, layout)}
        self.params = params
        self.speed = Speed(0)
        self._programs = functools.lru_cache(maxsize=8)(self._compile)

    def generate(
        self,
        prompts: Sequence[str],
        *,
        tokens: int = 100,
        stops: Sequence[str] = (),
        seed: int = 0,
        bos: bool = True,
    ) -> Iterator[Piece]:
        """Goes on from each prompt.

        A text ends with its document, before a stop string, or after so many tokens.  What is
        drawn for it depends on the seed, its prompt and its number, not on the other prompts.

        Args:
            tokens: of a text, at most.
            stops: strings before which a text ends.
            seed: other seeds draw other texts.
            bos: a prompt begins a document: the mark that ends one is read before it.

        Returns:
            Pieces as they come; those of a row together are its text without the prompt.

        Raises:
            UserError: a prompt and the tokens do not fit into the model, a number is out of its
                range, there is an empty stop, or an empty prompt and nothing before it.
        """
        _check_request(tokens, stops, seed)
        if not prompts:
            return iter(())
        encoded = [ids.tolist() for ids in self.run.tokenizer.encode(list(prompts))]
        for prompt, ids in zip(prompts, encoded, strict=True):
            self._check_room(prompt, len(ids), tokens, bos)
        rows = [Row(self.run.tokenizer, ids, tokens, stops) for ids in encoded]
        begin = [self.run.tokenizer.special["eod"]] * bos
        return self._list_pieces(
            rows, self._generate_tokens([begin + ids for ids in encoded], tokens, seed)
        )

    @property
    def _positions(self) -> int:
        """Returns how many positions the model has; 0: a state has read texts of any length."""
        return getattr(self.run.backbone, "L", 0)

    def _check_room(self, prompt: str, length: int, tokens: int, bos: bool) -> None:
        if not length and not bos:
            raise UserError("bos=False: an empty prompt leaves nothing to go on from")
        if not (L := self._positions):
            return
        room = L - length - bos + 1  # the last token is not read
        if tokens > room:
            raise UserError(
                f"the prompt {prompt[:40]!r} of {length} tokens and {tokens} more do not fit into "
                f"the model's {L} positions: there is room for {max(room, 0)}"
            )

    def _list_pieces(self, rows: list[Row], reads: Iterable[Read]) -> Iterator[Piece]:
        for number, read in enumerate(reads):
            going = [i for i, row in enumerate(rows) if not row.done]
            tokens_B = np.asarray(read.tokens_B1)[:, 0]
            if number:  # the first token came with the prompts
                self.speed.count_written(len(going))
            for i in going:
                text = rows[i].add(int(tokens_B[i]))
                if text or rows[i].done:
                    yield Piece(i, text, rows[i].done)
            if all(row.done for row in rows):
                return

    def _generate_tokens(self, prompts: list[list[int]], tokens: int, seed: int) -> Iterator[Read]:
        """Yields a token of each row `tokens` times, the next already being computed."""
        lengths_B = np.array([len(ids) for ids in prompts], np.int32)
        L, J = round_up(int(lengths_B.max())), round_up(int(lengths_B.max()) + tokens - 1)
        tokens_BL = np.zeros((len(prompts), min(L, self._positions or L)), np.int32)
        for row, ids in zip(tokens_BL, prompts, strict=True):
            row[: len(ids)] = ids
        begin, go_on = self._programs(*tokens_BL.shape, min(J, self._positions or J))
        self.speed = Speed(int(lengths_B.sum()))
        last = jax.block_until_ready(begin(self.params, np.int32(seed), tokens_BL, lengths_B))
        self.speed.end_prompts()
        # Dispatched before the last is yielded: the device works while the host decodes.
        for _ in range(tokens - 1):
            ahead = go_on(self.params, np.int32(seed), *last)
            yield last
            last = ahead
        yield last

    def _compile(self, B: int, L: int, J: int):
        # Two programs: one reads prompts of at most L tokens, one reads another token a row.  There
        # is room for J tokens of a row; the last that is written is not read.
        model = self.run.backbone, self.run.head
        read = functools.partial(_read, *model, self.sampler, self.run.tokenizer.V)

        def begin(params, seed, tokens_BL, lengths_B):
            room = (J,) if _has_room(self.run.backbone) else ()
            cache = self.run.backbone.initial_memory(B, *room)
            return read(params, seed, tokens_BL, cache, jnp.zeros_like(lengths_B), lengths_B)

        def go_on(params, seed, tokens_B1, cache, length_B):
            return read(params, seed, tokens_B1, cache, length_B, jnp.ones_like(length_B))

        seed, tokens_BL, lengths_B = (
            jax.ShapeDtypeStruct(s, jnp.int32) for s in ((), (B, L), (B,))
        )
        with sharding_context(self.layout):
            # The first program leaves the cache as the second one takes it.
            like = self.layout.add_shardings(
                jax.eval_shape(begin, self.params, seed, tokens_BL, lengths_B)
            )
            jit = functools.partial(jax.jit, out_shardings=self.layout.make_shardings(like))
            first = jit(begin).lower(self.params, seed, tokens_BL, lengths_B)
            # The cache is donated, so that no step holds two of them.
            later = jit(go_on, donate_argnums=3).lower(self.params, seed, *like)
        return first.compile(), later.compile()


def _refuse(backbone: Any) -> str:
    """Says why a model that cannot read on does not generate."""
    lacks = "has no keys and values, nor states of LSTMs, to go on from"
    return f"it {lacks if backbone.is_causal else 'is not causal'}"


def _can_read_on(backbone: Any) -> bool:
    """Checks for a causal model of ids whose memory is keys and values, or the states of LSTMs."""
    if not backbone.is_causal or backbone.example().ndim > 2:
        return False
    memory = _memory_shapes(backbone)
    states = jax.tree.leaves(memory, is_leaf=lambda x: isinstance(x, State))
    return _has_room(backbone) or (bool(states) and all(isinstance(x, State) for x in states))


def _has_room(backbone: Any) -> bool:
    """Checks for a memory with a place for each position, unlike a state of one size."""
    return isinstance(_memory_shapes(backbone), KVCache)


def _memory_shapes(backbone: Any) -> Any:
    # From its shape: nothing is allocated to be asked.
    return jax.eval_shape(lambda: backbone.initial_memory(1))


def round_up(length: int) -> int:
    """Returns the next power of two: texts of about one length share their programs."""
    return 1 << (length - 1).bit_length()


def _read(
    backbone, head, sampler: Sampler, V: int, params, seed, tokens_BL, cache, length_B, new_B
) -> Read:
    """Reads the first `new_B` tokens of each row behind what it has read, and chooses the next."""
    model = backbone.bind({"params": params["backbone"]})
    mask = Mask(is_causal=True, lengths_B=new_B)
    # Behind the prompts one token of each row at a time: what came before is kept as keys and
    # values, or in the state of an LSTM.
    h_BLD, cache = model(tokens_BL, mask=mask, memory=cache, train=False)
    # Only what the next token is chosen by: the logits of a whole prompt would be L times as many.
    h_B1D = jnp.take_along_axis(h_BLD, new_B[:, None, None] - 1, 1)
    scores = head.bind({"params": params["head"]})
    # One of the V pieces there are: an embedding may have rows beyond them.
    logits_BV = scores.logits(h_B1D, model.table())[:, 0, :V]
    length_B = length_B + new_B
    next_B = sampler(logits_BV, jax.random.key(seed), length_B)
    return Read(next_B[:, None], cache, length_B)


def _check_request(tokens: int, stops: Sequence[str], seed: int) -> None:
    if tokens < 1:
        raise UserError(f"tokens={tokens}: is how many a text may have, at least 1")
    if not all(stops):
        raise UserError(f"stops={list(stops)}: one is empty, before which any text would end")
    if not 0 <= seed < 1 << 31:
        raise UserError(f"seed={seed}: is a whole number from 0 to {(1 << 31) - 1}")
