"""Turns summed metrics into the numbers that are written down and printed."""

import math
from collections.abc import Mapping

import numpy as np

from modules.metrics import Metrics, Sum
from pretrain.runtime.errors import UserError

NORMS = "norms/"  # begins names of `gradient_norms`; TensorBoard makes it a group


def compute_means(metrics: Metrics) -> dict[str, float]:
    """Divides each sum once by its weight, after everything has been added up.

    Returns:
        A number by name; one for which nothing was weighed is left out.  Beside a loss in nats
        stands its exponential, named "perplexity" for "loss" and "<name>_perplexity" for any other.
    """
    values = {}
    for name, metric in metrics.items():
        if not np.asarray(metric.weight).any():  # as of a task that no batch was of
            continue
        values[name] = READINGS.get(metric.unit, mean)(metric)
        if metric.unit == "nats":
            values["perplexity" if name == "loss" else f"{name}_perplexity"] = perplexity(metric)
    return values


def split_direction(metric: str) -> tuple[str, int]:
    """Splits "-dev/loss" into a number's name and its sign: -1 where a lower one is better."""
    return metric.removeprefix("-"), -1 if metric.startswith("-") else 1


def read_metric(values: Mapping[str, float], metric: str, key: str) -> float:
    """Reads the number that a metric names, with such a sign that a higher one is better.

    Args:
        values: of an evaluation, by name.
        metric: as of `split_direction`.
        key: of the recipe, which names the metric.

    Raises:
        UserError: the evaluation has no such number.
    """
    name, sign = split_direction(metric)
    if name not in values:
        raise UserError(f"{key}={metric!r}: there are {', '.join(values)}")
    return sign * values[name]


def mean(metric: Sum) -> float:
    """Divides the sum by its weight; 0 where nothing was weighed."""
    return float(metric.total) / max(float(metric.weight), 1e-9)


def perplexity(metric: Sum) -> float:
    """Returns the exponential of a mean in nats."""
    # Beyond e^709 a float64 overflows, and math.exp raises.
    return math.exp(min(mean(metric), 700.0))


def entropy(metric: Sum) -> float:
    """Returns the entropy of a histogram [V], in nats."""
    counts_V = np.asarray(metric.total, np.float64)
    share_V = counts_V[counts_V > 0] / max(counts_V.sum(), 1e-9)
    return float(-(share_V * np.log(share_V)).sum())


READINGS = {"perplexity": perplexity, "unigram": entropy}  # of the other units, the mean
