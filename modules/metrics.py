"""Metrics as sums with weights, which add up over devices, microbatches and batches."""

from typing import Any

import jax
from flax import struct

UNITS = ("", "nats", "perplexity", "share", "unigram", "count")


@struct.dataclass
class Sum:
    """A weighted sum of one quantity; the metric is its mean, `total / weight`.

    Attributes:
        total: the weighted sum; of "unigram" a histogram, [V].
        weight: the sum of the weights.
        unit: what the mean is, and with it how it is printed; one of `UNITS`.
            "nats": of a language model's loss; its exponential, the perplexity, follows.
            "perplexity": nats of which only the exponential is printed.
            "share": of a whole, between 0 and 1.
            "unigram": a histogram of tokens, printed as its entropy in nats, which is the loss of
            the best constant guess.
            "count": a plain number.
        train: the mean is part of what is minimised.
    """

    total: Any
    weight: Any
    # Static: devices and batches add up numbers, not what they mean.
    unit: str = struct.field(pytree_node=False, default="")
    train: bool = struct.field(pytree_node=False, default=False)

    def __post_init__(self):
        if self.unit not in UNITS:
            raise ValueError(f"unit={self.unit!r} is none of {', '.join(UNITS)}")


Metrics = dict[str, Sum]


def add(a: Metrics, b: Metrics) -> Metrics:
    """Adds the metrics of two batches; what only one of them has stays as it is."""
    # A `Sum` is a tree: totals and weights add up, units stay.
    both = {name: jax.tree.map(lambda x, y: x + y, a[name], b[name]) for name in a if name in b}
    return {**a, **b, **both}
