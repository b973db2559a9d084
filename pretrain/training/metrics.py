"""Metrics are (total, weight) pairs until the last moment; then they are a line of JSON."""

import math
from typing import Any

import jax
import numpy as np

Sums = dict[str, tuple[Any, Any]]


def add(a: Sums, b: Sums) -> Sums:
    """The sums of two batches together; nothing yet is {}."""
    return jax.tree.map(lambda x, y: x + y, a, b) if a else b


def means(sums: Sums) -> dict[str, float]:
    """Each pair divided once, after everything has been added up.

    A histogram, whose name ends in _V, becomes its entropy: what the best constant guess of
    these very tokens would cost, in nats.  Beside "loss" comes its exponential, "perplexity";
    "word_nats", nats per word of the original text, become "word_perplexity" alone.
    """
    values = {}
    for name, (total, weight) in sums.items():
        if name.endswith("_V"):
            values[name[:-2]] = _entropy(np.asarray(total, np.float64))
            continue
        values[name] = float(total) / max(float(weight), 1e-9)
        if name.endswith("_nats"):
            values[f"{name.removesuffix('_nats')}_perplexity"] = _exp(values.pop(name))
    if "loss" in values:
        values["perplexity"] = _exp(values["loss"])
    return values


def _exp(x: float) -> float:
    return math.exp(min(x, 700.0))


def _entropy(counts_V: np.ndarray) -> float:
    share = counts_V[counts_V > 0] / max(counts_V.sum(), 1e-9)
    return float(-(share * np.log(share)).sum())
