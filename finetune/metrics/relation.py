"""How well relations were told apart: as the official scorer of SemEval-2010 task 8 counts.

Labels are "Cause-Effect(e1,e2)" and the like, or "Other".  Scores are in percent, as printed by
semeval2010_task8_scorer-v1.2.pl.
"""

import collections
from collections.abc import Callable, Sequence

from finetune.metrics.counts import Counts, paired
from pretrain.runtime.errors import UserError

OTHER = "Other"


def relation(label: str) -> str:
    """The label without its direction."""
    return label.partition("(")[0]


# Each way of scoring: what is a class, and what must agree for a hit.
WAYS: dict[str, tuple[Callable[[str], str], Callable[[str], str]]] = {
    "official": (relation, str),  # 9 + 1 classes, "taking directionality into account"
    "directed": (str, str),  # 2 * 9 + 1 classes
    "undirected": (relation, relation),  # 9 + 1 classes, "ignoring directionality"
}


def relation_counts(
    predictions: Sequence[str | None], references: Sequence[str], way: str = "official"
) -> dict[str, Counts]:
    """Right, predicted and actual examples of each class of the references, "Other" included.

    Args:
        predictions: None for an example that was skipped.
        way: one of `WAYS`.

    Raises:
        UserError: the lengths differ, there is nothing, or there is no such way.
    """
    paired(predictions, references)
    if way not in WAYS:
        raise UserError(f"way={way!r}: choose one of {', '.join(WAYS)}")
    of, agree = WAYS[way]
    pairs = list(zip(predictions, references, strict=True))
    correct = collections.Counter(of(b) for a, b in pairs if a is not None and agree(a) == agree(b))
    predicted = collections.Counter(of(a) for a in predictions if a is not None)
    actual = collections.Counter(map(of, references))
    return {name: Counts(correct[name], predicted[name], actual[name]) for name in sorted(actual)}


def relation_scores(
    predictions: Sequence[str | None], references: Sequence[str], way: str = "official"
) -> dict[str, float]:
    """accuracy, and precision, recall and f1, micro_ and macro_; macro_f1 is the official score.

    The averages leave "Other" out, and run over the classes of the references: a prediction that
    is none of them counts as "Other".  macro_f1 is the mean of the classes' F1.  A skipped example
    is wrong in the accuracy and missing in the recall.  Arguments and errors as `relation_counts`.
    """
    counts = relation_counts(predictions, references, way)
    kept = [each for name, each in counts.items() if name != OTHER]
    total = Counts(*(sum(column) for column in zip(*kept, strict=True)) if kept else (0, 0, 0))
    result = {"accuracy": 100 * sum(c.correct for c in counts.values()) / len(references)}
    for name in ("precision", "recall", "f1"):
        result[f"micro_{name}"] = 100 * getattr(total, name)
        each = [getattr(count, name) for count in kept]
        result[f"macro_{name}"] = 100 * sum(each) / max(len(each), 1)
    return result
