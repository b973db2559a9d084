"""Begins a task's own words with vectors of a file, beside whatever backbone there is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from finetune.inputs import word_vectors
from finetune.inputs.words import list_frequent_words, normalize_word
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section


class Vocabulary:
    """A task's own words, with as much of a tokenizer as `word_vectors.build_table` asks for.

    Attributes:
        pieces: the words, behind what stands for all others.
    """

    def __init__(self, words: Sequence[str], zero_digits: bool = False):
        # Id 0 stands for all other words.
        self.pieces, self.zero_digits = ["", *words], zero_digits

    def words(self, texts: Sequence[str]) -> list[list[str]]:
        """Splits texts at blanks into normalized words."""
        return [[normalize_word(x, self.zero_digits) for x in text.split(" ")] for text in texts]

    def extend(self, texts: Iterable[str]) -> "Vocabulary":
        """Returns a vocabulary with the words of the texts behind its own."""
        new = [word for text in texts for word in text.split(" ")]
        return Vocabulary([*self.pieces[1:], *new], self.zero_digits)


def build_own_table(
    vectors: Mapping[str, Any],
    task: Mapping[str, Any],
    sentences: Sequence[Sequence[str]],
    held_out: Sequence[Sequence[str]],
    seed: int,
) -> tuple[dict[str, Any], word_vectors.Table]:
    """Reads the vectors of a task's own words.

    Args:
        vectors, task: sections of the recipe.
        sentences, held_out: of training, and of the other splits, whose words that have a vector
            join the vocabulary.
        seed: of the vectors that are drawn.

    Returns:
        (section `task` with the vocabulary, and with the vectors' width if it has none; table)

    Raises:
        UserError: the task has no words of its own, or the file is malformed.
    """
    if not task.get("min_count"):
        raise UserError(f"vectors.tables={word_vectors.TASK_TABLE!r}: set task.min_count, too")
    zero_digits = task.get("zero_digits", False)
    words = list_frequent_words(sentences, task["min_count"], zero_digits)
    texts, others = ([" ".join(x) for x in split] for split in (sentences, held_out))

    def build(**fields: Any):
        vocabulary: Any = Vocabulary(words, zero_digits)
        return word_vectors.build_table(vocabulary, texts, others, seed, **fields)

    vocabulary, table = call_section("vectors", build, vectors)
    # The file's width, unless the recipe has one, which then has to be it.
    encoder = dict(task.get("encoder", {}))
    if encoder.get("word_D") is None:
        encoder["word_D"] = table.rows_VD.shape[1]
    return {**task, "vocabulary": vocabulary.pieces[1:], "encoder": encoder}, table
