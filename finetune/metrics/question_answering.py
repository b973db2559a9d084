"""Scores answers that are spans of text, as the official scripts of SQuAD do.

Predictions are the answers' texts; references are the lists of accepted texts, [] where a question
has no answer.  Scores are in percent, under the scripts' names (evaluate-v1.1.py, which XQuAD uses
for every language too, and evaluate-v2.0.py).
"""

import collections
import math
import re
import string
from collections.abc import Sequence

import numpy as np

from finetune.metrics.counts import check_paired
from pretrain.runtime.errors import UserError

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lowers a text and drops ASCII punctuation, English articles and superfluous blanks."""
    # As the scripts: other scripts' punctuation, accents and compatibility forms stay.
    # Punctuation goes first, so that "the-end" is one word without an article.
    return " ".join(ARTICLES.sub(" ", text.lower().translate(NO_PUNCTUATION)).split())


def exact(prediction: str, answer: str) -> float:
    """Returns 1.0 if both are equal once normalised, else 0.0."""
    return float(normalise(prediction) == normalise(answer))


def overlap(prediction: str, answer: str) -> float:
    """Returns the F1 of the words of both, 0 to 1; 0.0 if either is empty."""
    predicted, actual = normalise(prediction).split(), normalise(answer).split()
    # A word counts as often as both texts have it.
    same = sum((collections.Counter(predicted) & collections.Counter(actual)).values())
    if not same:
        return 0.0
    precision, recall = same / len(predicted), same / len(actual)
    return 2 * precision * recall / (precision + recall)


def squad1(
    predictions: Sequence[str | None], references: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns exact_match and f1 of SQuAD 1.1, each the best over a question's answers.

    Args:
        predictions: texts; None, for a question left out, counts as wrong.

    Raises:
        UserError: the lengths differ, there is nothing, or a question has no answer.
    """
    check_paired(predictions, references)
    if [] in (accepted := [list(answers) for answers in references]):
        raise UserError(f"question {accepted.index([])} has no answer; SQuAD 1.1 expects some")
    # The scripts take the best answer for each of the two scores by itself.
    rows = [
        (0.0, 0.0)
        if guess is None
        else (max(exact(guess, a) for a in answers), max(overlap(guess, a) for a in answers))
        for guess, answers in zip(predictions, accepted, strict=True)
    ]
    exact_match, f1 = (math.fsum(column) / len(rows) for column in zip(*rows, strict=True))
    return {"exact_match": 100 * exact_match, "f1": 100 * f1}


def squad2(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    no_answer: Sequence[float] | None = None,
    threshold: float = math.inf,
) -> dict[str, float]:
    """Returns exact and f1 of SQuAD 2.0; as HasAns_ and NoAns_ of those questions alone.

    Args:
        predictions: "" says that there is no answer.
        no_answer: scores of there being none, probabilities or differences of logits.  They add
            the best scores that a threshold can give, and that threshold: best_exact,
            best_exact_thresh, best_f1, best_f1_thresh.
        threshold: a question whose `no_answer` exceeds it counts as answered by "".

    Raises:
        UserError: the lengths differ, or there is nothing.
    """
    check_paired(predictions, references)
    answerable_N = np.array([len(answers) > 0 for answers in references])
    raw = _raw_scores(predictions, references)
    silent_N = np.zeros(len(references), bool)
    if no_answer is not None:
        check_paired(no_answer, references, "no_answer")
        silent_N = np.asarray(no_answer, np.float64) > threshold
    # "" is right exactly where there is no answer.
    scored = {name: np.where(silent_N, ~answerable_N, raw_N) for name, raw_N in raw.items()}
    result = _means(scored, "", np.ones_like(answerable_N))
    result |= _means(scored, "HasAns_", answerable_N) | _means(scored, "NoAns_", ~answerable_N)
    if no_answer is not None:
        # Whether the system answers at all, which a threshold can only take back.
        given_N = np.array([bool(guess) for guess in predictions])
        for name, raw_N in raw.items():
            best = best_threshold(raw_N, no_answer, answerable_N, given_N)
            result[f"best_{name}"], result[f"best_{name}_thresh"] = best
    return result


def best_threshold(
    raw_N: np.ndarray, no_answer: Sequence[float], answerable_N: np.ndarray, given_N: np.ndarray
) -> tuple[float, float]:
    """Returns the best percentage of any threshold on `no_answer`, and the lowest such threshold.

    Args:
        raw_N: the scores of the predictions without a threshold, 0 to 1.
        answerable_N: whether the question has an answer.
        given_N: whether the prediction is not "".
    """
    # This is find_all_best_thresh of the official script.
    na_N = np.asarray(no_answer, np.float64)
    # As the script: questions of equal `no_answer` are separated by their order.
    order_N = np.argsort(na_N, kind="stable")
    # Answering one more question gains its score, or loses a right silence.
    gain_N = np.where(answerable_N, raw_N, -given_N.astype(float))[order_N]
    totals = np.cumsum([float((~answerable_N).sum()), *gain_N])
    # The script's 0.0 if it is best to answer nothing; below them all if some are negative.
    nothing = 0.0 if na_N.min() >= 0 else np.nextafter(na_N.min(), -np.inf)
    best = int(np.argmax(totals))
    return float(100 * totals[best] / len(na_N)), float([nothing, *na_N[order_N]][best])


def _raw_scores(
    predictions: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, np.ndarray]:
    """Scores predictions without a threshold; "" is accepted if no answer is left."""
    rows = []
    for guess, answers in zip(predictions, references, strict=True):
        # As the script: an answer of articles alone counts only where there is no other.
        accepted = [answer for answer in answers if normalise(answer)] or [""]
        hit = max(exact(guess, answer) for answer in accepted)
        rows.append((hit, max(hit, *(overlap(guess, answer) for answer in accepted))))
    return dict(zip(("exact", "f1"), np.array(rows).T, strict=True))


def _means(scored: dict[str, np.ndarray], prefix: str, chosen_N: np.ndarray) -> dict[str, float]:
    if not chosen_N.any():
        return {}
    means = {f"{prefix}{name}": float(100 * x_N[chosen_N].mean()) for name, x_N in scored.items()}
    return means | {f"{prefix}total": float(chosen_N.sum())}
