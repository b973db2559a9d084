"""How well words were tagged: entities as seqeval and conlleval count them, and single tags.

Predictions and references are lists of sentences, each a list of tags; scores are fractions of 1.
"""

import collections
from collections.abc import Sequence

from finetune.metrics import classification
from finetune.metrics.counts import Counts, paired
from finetune.metrics.tag_schemes import entities
from pretrain.runtime.errors import UserError

Sentences = Sequence[Sequence[str]]


def entity_counts(
    predictions: Sentences, references: Sentences, scheme: str | None = None
) -> dict[str, Counts]:
    """Entities of each type, by name: right ones (type and both ends), predicted, actual.

    Args:
        scheme: None reads tags leniently, as conlleval and seqeval's default mode; a name of
            `tag_schemes.SCHEMES` counts only entities that are soundly written, in the predictions
            and in the references, as seqeval's strict mode.

    Raises:
        UserError: the lengths differ, there is nothing, or a tag is none of the scheme.
    """
    _aligned(predictions, references)
    correct, predicted, actual = (collections.Counter[str]() for _ in range(3))
    for guess, gold in zip(predictions, references, strict=True):
        guessed, there = set(entities(guess, scheme)), set(entities(gold, scheme))
        for counter, found in (
            (correct, guessed & there),
            (predicted, guessed),
            (actual, there),
        ):
            counter.update(entity.type for entity in found)
    types = sorted(predicted | actual)
    return {type_: Counts(correct[type_], predicted[type_], actual[type_]) for type_ in types}


def entity_scores(
    predictions: Sentences, references: Sentences, scheme: str | None = None
) -> dict[str, float]:
    """precision, recall and f1 of all entities together, and macro_f1, the mean over types.

    0.0 where nothing was predicted or nothing was there; otherwise as `entity_counts`.
    """
    counts = entity_counts(predictions, references, scheme).values()
    total = Counts(*(sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0))
    return {
        "precision": total.precision,
        "recall": total.recall,
        "f1": total.f1,
        "macro_f1": sum(each.f1 for each in counts) / max(len(counts), 1),
    }


def token_accuracy(predictions: Sentences, references: Sentences) -> float:
    """The share of words whose tag is right: that of part-of-speech tagging.

    Raises:
        UserError: the lengths differ, or there is no word.
    """
    _aligned(predictions, references)
    flat = [[tag for sentence in each for tag in sentence] for each in (predictions, references)]
    return classification.accuracy(*flat)


def _aligned(predictions: Sentences, references: Sentences) -> None:
    paired(predictions, references)
    for i, (guess, gold) in enumerate(zip(predictions, references, strict=True)):
        if len(guess) != len(gold):
            raise UserError(f"sentence {i}: {len(guess)} tags for {len(gold)} words")
