"""Scores tagged words: entities as seqeval and conlleval count them, and single tags.

Predictions and references are lists of sentences, each a list of tags; scores are fractions of 1.
"""

import collections
from collections.abc import Sequence

from finetune.metrics import classification
from finetune.metrics.counts import Counts, check_paired
from finetune.metrics.tag_schemes import entities
from pretrain.runtime.errors import UserError

Sentences = Sequence[Sequence[str]]


def entity_counts(
    predictions: Sentences, references: Sentences, scheme: str | None = None
) -> dict[str, Counts]:
    """Counts the entities of each type; a correct one has the type and both ends right.

    Args:
        scheme: None reads tags leniently, as conlleval and seqeval's default mode.  A name of
            `tag_schemes.SCHEMES` counts only well-formed entities, as seqeval's strict mode.

    Raises:
        UserError: the lengths differ, there is nothing, or a tag is none of the scheme.
    """
    _check_aligned(predictions, references)
    correct, predicted, actual = (collections.Counter[str]() for _ in range(3))
    for guess, gold in zip(predictions, references, strict=True):
        guesses, golds = set(entities(guess, scheme)), set(entities(gold, scheme))
        # An entity's place tells it from others of its sentence, so sets lose none.
        correct.update(entity.type for entity in guesses & golds)
        predicted.update(entity.type for entity in guesses)
        actual.update(entity.type for entity in golds)
    types = sorted(predicted | actual)
    return {type_: Counts(correct[type_], predicted[type_], actual[type_]) for type_ in types}


def entity_scores(
    predictions: Sentences, references: Sentences, scheme: str | None = None
) -> dict[str, float]:
    """Returns precision, recall and f1 of all entities, and macro_f1, the mean over types.

    Args and Raises: as for `entity_counts`.
    """
    counts = entity_counts(predictions, references, scheme).values()
    # Micro averages: entities of all types count together.
    # All are 0.0 where nothing was predicted or nothing was there.
    total = Counts(*map(sum, zip(*counts, strict=True)) if counts else (0, 0, 0))
    return {
        "precision": total.precision,
        "recall": total.recall,
        "f1": total.f1,
        "macro_f1": sum(count.f1 for count in counts) / max(len(counts), 1),
    }


def token_accuracy(predictions: Sentences, references: Sentences) -> float:
    """Returns the share of words whose tag is right, as for part-of-speech tagging.

    Raises:
        UserError: the lengths differ, or there is no word.
    """
    _check_aligned(predictions, references)
    flat = [[tag for sentence in side for tag in sentence] for side in (predictions, references)]
    return classification.accuracy(*flat)


def _check_aligned(predictions: Sentences, references: Sentences) -> None:
    check_paired(predictions, references)
    for i, (guess, gold) in enumerate(zip(predictions, references, strict=True)):
        if len(guess) != len(gold):
            raise UserError(f"sentence {i}: {len(guess)} tags for {len(gold)} words")
