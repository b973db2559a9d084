"""Scores the classification of relations, as the official scorer of SemEval-2010 task 8 does.

Labels are "Cause-Effect(e1,e2)" and the like, or "Other".  Scores are in percent, as printed by
semeval2010_task8_scorer-v1.2.pl.
"""

import collections
from collections.abc import Callable, Sequence

from finetune.metrics.counts import Counts, check_paired
from pretrain.runtime.errors import UserError

OTHER = "Other"


def drop_direction(label: str) -> str:
    return label.partition("(")[0]


# Each way of scoring: what is a class, and what must agree for a hit.
WAYS: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    "official": (drop_direction, str),  # 9 + 1 classes, "taking directionality into account"
    "directed": (str, str),  # 2 * 9 + 1 classes
    "undirected": (drop_direction, drop_direction),  # 9 + 1 classes, "ignoring directionality"
}


def relation_counts(
    predictions: Sequence[str | None], references: Sequence[str], way: str = "official"
) -> dict[str, Counts]:
    """Counts the examples of each class of the references, "Other" included.

    Args:
        predictions: None for an example that was skipped.
        way: one of `WAYS`.

    Raises:
        UserError: the lengths differ, there is nothing, or there is no such way.
    """
    check_paired(predictions, references)
    if way not in WAYS:
        raise UserError(f"way={way!r}: choose one of {', '.join(WAYS)}")
    class_of, agree = WAYS[way]
    pairs = list(zip(predictions, references, strict=True))
    hits = (b for a, b in pairs if a is not None and agree(a) == agree(b))
    correct = collections.Counter(map(class_of, hits))
    predicted = collections.Counter(class_of(a) for a in predictions if a is not None)
    actual = collections.Counter(map(class_of, references))
    return {name: Counts(correct[name], predicted[name], actual[name]) for name in sorted(actual)}


def relation_scores(
    predictions: Sequence[str | None], references: Sequence[str], way: str = "official"
) -> dict[str, float]:
    """Returns accuracy, and precision, recall and f1 with the prefixes micro_ and macro_.

    Args and Raises: as for `relation_counts`.
    """
    counts = relation_counts(predictions, references, way)
    # Classes of the references: a prediction of no such class counts as "Other".  A skipped example
    # is wrong in the accuracy and missing in the recall.
    classes = [count for name, count in counts.items() if name != OTHER]
    total = Counts(*map(sum, zip(*classes, strict=True)) if classes else (0, 0, 0))
    result = {"accuracy": 100 * sum(c.correct for c in counts.values()) / len(references)}
    for name in ("precision", "recall", "f1"):
        result[f"micro_{name}"] = 100 * getattr(total, name)
        values = [getattr(count, name) for count in classes]
        # The official score is this f1: the mean of the classes' F1.
        result[f"macro_{name}"] = 100 * sum(values) / max(len(values), 1)
    return result
