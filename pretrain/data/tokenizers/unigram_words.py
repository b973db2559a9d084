"""Finds whole words for a unigram model in normalised text, and scores them as its pieces."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from pretrain.data.tokenizers.whole_words import has_letter, is_known, select_words

# Behind a blank, and alone there but for marks: no "don" of "don't".
WORD = re.compile(r"▁\w+(?![^▁]*\w)")
BONUS = 1e-3  # for each piece that a word replaces: above rounding, below what decides elsewhere
UNKNOWN_PENALTY = 10.0  # of both libraries: an unknown character is so much below all pieces


def find_new_words(
    texts: Iterable[str],
    most: int,
    pieces: Sequence[str],
    scores: Sequence[float],
    cut: Callable[[str], list[int]],
    unknown: int,
) -> list[tuple[str, float]]:
    """Finds the commonest words that are cut into several pieces, or unknown.

    Args:
        texts: normalised: a "▁" before each word.
        most: how many of them.
        pieces, scores: of the model.
        cut: (word without "▁") -> its ids.
        unknown: the id of what is unknown.

    Returns:
        The words with their "▁", and their scores.

    Raises:
        UserError: the texts have fewer.
    """
    counts, old = Counter[str](), set(pieces)
    for text in texts:
        counts.update(WORD.findall(text))
    ids: dict[str, list[int]] = {}

    def is_new(word: str) -> bool:
        if word in old or not has_letter(word):
            return False
        ids[word] = cut(word[1:])
        return not is_known(ids[word], unknown)

    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    lowest = min(scores) - UNKNOWN_PENALTY

    # The sum of its pieces' scores, and a little more: so it is taken whole, and a longer word is
    # cut otherwise only where those pieces stand in it.
    def score(word: str) -> float:
        parts = (lowest if i == unknown else scores[i] for i in ids[word])
        return sum(parts) + BONUS * len(ids[word])

    return [(word, score(word)) for word in select_words(ranked, is_new, most)]
