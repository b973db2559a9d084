"""How well labels and numbers were predicted: accuracy, F1, Matthews, Pearson, Spearman.

Predictions and references are lists of equal length, one entry per example; scores are fractions
of 1.  What is undefined, as an F1 without positives or the correlation of a constant, is 0.0.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
import sklearn.metrics

from finetune.metrics.counts import paired
from finetune.metrics.relation import relation_scores
from pretrain.runtime.errors import UserError


def accuracy(predictions: Sequence, references: Sequence) -> float:
    """The share of labels that are right.

    This and the functions of labels below raise UserError if the lengths differ, if there is
    nothing, or if strings are to be compared with numbers.
    """
    _labels(predictions, references)
    return float(sklearn.metrics.accuracy_score(references, predictions))


def f1(predictions: Sequence, references: Sequence, positive: Any = "1") -> float:
    """F1 of one class, the positive one: that of MRPC and QQP."""
    return f1_average(predictions, references, labels=[positive])


def f1_average(
    predictions: Sequence,
    references: Sequence,
    average: str = "macro",
    labels: Sequence | None = None,
) -> float:
    """F1 "macro" (the mean over classes) or "micro" (over all decisions together).

    Classes are `labels`, where one that never occurs counts 0, or all that occur in either list.
    """
    _labels(predictions, references)
    if average not in ("macro", "micro"):
        raise UserError(f"average={average!r}: choose 'macro' or 'micro'")
    if labels is not None:
        _one_kind([references[0], *labels])
    score = sklearn.metrics.f1_score(
        references, predictions, labels=labels, average=average, zero_division=0.0
    )
    return float(score)


def matthews(predictions: Sequence, references: Sequence) -> float:
    """Matthews' correlation of two or more classes, -1 to 1: that of CoLA."""
    _labels(predictions, references)
    if len({*predictions, *references}) == 1:
        return 0.0  # scikit-learn says so too, with a warning
    return float(sklearn.metrics.matthews_corrcoef(references, predictions))


def pearson(predictions: Sequence[float], references: Sequence[float]) -> float:
    """The linear correlation, -1 to 1.

    This and `spearman` raise UserError if the lengths differ, or a number is not finite.
    """
    return _correlation(scipy.stats.pearsonr, predictions, references)


def spearman(predictions: Sequence[float], references: Sequence[float]) -> float:
    """The correlation of the ranks, -1 to 1; equal numbers share their mean rank."""
    return _correlation(scipy.stats.spearmanr, predictions, references)


def relation_f1(predictions: Sequence[str], references: Sequence[str]) -> float:
    """The official score of SemEval-2010 task 8, as a share: see `relation_scores`."""
    return relation_scores(predictions, references)["macro_f1"] / 100


def choice_accuracy(scores: Sequence[Sequence[float]], references: Sequence[int]) -> float:
    """The share of examples whose right choice scores highest; of equals, the first is chosen.

    Args:
        scores: one per choice; examples may have different numbers of choices.
        references: the right choice's index, from 0.
    """
    paired(scores, references)
    return accuracy([int(np.argmax(row)) for row in scores], [int(i) for i in references])


METRICS: Mapping[str, Callable[..., float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": f1_average,
    "micro_f1": functools.partial(f1_average, average="micro"),
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "relation_f1": relation_f1,
}
GLUE: Mapping[str, tuple[str, ...]] = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "qqp": ("accuracy", "f1"),
    "stsb": ("pearson", "spearman"),
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
}


def score(
    names: Sequence[str], predictions: Sequence, references: Sequence, positive: Any = "1"
) -> dict[str, float]:
    """The named `METRICS`; `GLUE` has those of its tasks.  "f1" is that of the positive class.

    Raises:
        UserError: there is no such metric, or it cannot be told of these lists.
    """
    if unknown := [name for name in names if name not in METRICS]:
        raise UserError(f"metric {unknown[0]!r}: choose from {', '.join(METRICS)}")
    given: dict[str, Callable[..., float]] = {
        **METRICS,
        "f1": functools.partial(f1, positive=positive),
    }
    return {name: given[name](predictions, references) for name in names}


def _labels(predictions: Sequence, references: Sequence) -> None:
    paired(predictions, references)
    _one_kind([*predictions, *references])


def _one_kind(labels: Sequence) -> None:
    """Raises UserError if there are strings among others: "1" and 1 would never be equal."""
    one_of = {isinstance(label, str): label for label in labels}
    if len(one_of) > 1:
        raise UserError(
            f"scores: labels are strings or numbers, not both, as {list(one_of.values())}"
        )


def _correlation(function: Callable, predictions: Sequence, references: Sequence) -> float:
    paired(predictions, references)
    x_N, y_N = (np.asarray(x, np.float64) for x in (predictions, references))
    if bad := np.flatnonzero(~(np.isfinite(x_N) & np.isfinite(y_N))).tolist():
        raise UserError(f"scores: example {bad[0]} has {x_N[bad[0]]} for {y_N[bad[0]]}")
    if np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
        return 0.0
    return float(function(x_N, y_N).statistic)
