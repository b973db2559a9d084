"""Scores labels and numbers: accuracy, F1, Matthews, Pearson and Spearman correlation.

Predictions and references are lists of equal length, one entry per example; scores are fractions
of 1.  An undefined score, as an F1 without positives or the correlation of a constant, is 0.0.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.stats
import sklearn.metrics

from finetune.metrics.counts import check_paired
from finetune.metrics.relation import relation_scores
from pretrain.runtime.errors import UserError


def accuracy(predictions: Sequence, references: Sequence) -> float:
    """Returns the share of labels that are right.

    Raises:
        UserError: the lengths differ, there is nothing, or strings meet numbers.  So do the
            functions of labels below.
    """
    _check_labels(predictions, references)
    return float(sklearn.metrics.accuracy_score(references, predictions))


def f1(predictions: Sequence, references: Sequence, positive: Any = "1") -> float:
    """Returns the F1 of the positive class, as for MRPC and QQP."""
    return f1_average(predictions, references, labels=[positive])


def f1_average(
    predictions: Sequence,
    references: Sequence,
    average: str = "macro",
    labels: Sequence | None = None,
) -> float:
    """Returns the F1 averaged over classes.

    Args:
        average: "macro", the mean over classes, or "micro", of all decisions together.
        labels: the classes, of which one that never occurs counts 0; None takes all that occur.
    """
    _check_labels(predictions, references)
    if average not in ("macro", "micro"):
        raise UserError(f"average={average!r}: choose 'macro' or 'micro'")
    if labels is not None:
        # "1" for a class 1 would score 0.0, not fail.
        _check_one_type([references[0], *labels])
    # zero_division: a class without predictions or references scores 0.0, without a warning.
    score = sklearn.metrics.f1_score(
        references, predictions, labels=labels, average=average, zero_division=0.0
    )
    return float(score)


def matthews(predictions: Sequence, references: Sequence) -> float:
    """Returns Matthews' correlation of two or more classes, -1 to 1, as for CoLA."""
    _check_labels(predictions, references)
    if len({*predictions, *references}) == 1:
        return 0.0  # scikit-learn returns the same, with a warning
    return float(sklearn.metrics.matthews_corrcoef(references, predictions))


def pearson(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Returns the linear correlation, -1 to 1.

    Raises:
        UserError: the lengths differ, or a number is not finite.  So does `spearman`.
    """
    return _correlate(scipy.stats.pearsonr, predictions, references)


def spearman(predictions: Sequence[float], references: Sequence[float]) -> float:
    """Returns the correlation of the ranks, -1 to 1; equal numbers share their mean rank."""
    return _correlate(scipy.stats.spearmanr, predictions, references)


def relation_f1(predictions: Sequence[str], references: Sequence[str]) -> float:
    """Returns the official score of SemEval-2010 task 8 as a fraction: see `relation_scores`."""
    return relation_scores(predictions, references)["macro_f1"] / 100


def choice_accuracy(scores: Sequence[Sequence[float]], references: Sequence[int]) -> float:
    """Returns the share of examples whose right choice scores highest.

    Args:
        scores: one per choice, in any number per example; of equal ones the first is chosen.
        references: the index of the right choice, from 0.
    """
    check_paired(scores, references)  # else argmax of an empty row would speak
    return accuracy([int(np.argmax(row)) for row in scores], [int(i) for i in references])


METRICS: Mapping[str, Callable[..., float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": f1_average,
    # Where every example has one label, this equals the accuracy.
    "micro_f1": functools.partial(f1_average, average="micro"),
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "relation_f1": relation_f1,
}
# The metrics that the GLUE leaderboard reports for each task (Wang et al. 2018, table 1).
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
    """Computes the named `METRICS`; `GLUE` lists those of its tasks.

    Args:
        positive: the class whose F1 is "f1".

    Raises:
        UserError: there is no such metric, or these lists have none.
    """
    if unknown := [name for name in names if name not in METRICS]:
        raise UserError(f"metric {unknown[0]!r}: choose from {', '.join(METRICS)}")
    metrics: dict[str, Callable[..., float]] = {
        **METRICS,
        "f1": functools.partial(f1, positive=positive),
    }
    return {name: metrics[name](predictions, references) for name in names}


def _check_labels(predictions: Sequence, references: Sequence) -> None:
    check_paired(predictions, references)
    _check_one_type([*predictions, *references])


def _check_one_type(labels: Sequence) -> None:
    # "1" and 1 would never be equal.
    # One label of each type, for the message.
    examples = {isinstance(label, str): label for label in labels}
    if len(examples) > 1:
        raise UserError(
            f"scores: labels are strings or numbers, not both, as {list(examples.values())}"
        )


def _correlate(function: Callable, predictions: Sequence, references: Sequence) -> float:
    check_paired(predictions, references)
    x_N, y_N = (np.asarray(x, np.float64) for x in (predictions, references))
    if bad := np.flatnonzero(~(np.isfinite(x_N) & np.isfinite(y_N))).tolist():
        raise UserError(f"scores: example {bad[0]} has {x_N[bad[0]]} for {y_N[bad[0]]}")
    # SciPy returns NaN and warns where one side is constant.
    if np.ptp(x_N) == 0 or np.ptp(y_N) == 0:
        return 0.0
    return float(function(x_N, y_N).statistic)
