"""Puts words' vectors from a file into the embedding that a network from scratch begins with."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from finetune.inputs import vector_files
from pretrain.checkpoint import named_leaves
from pretrain.data.tokenizers import Tokenizer
from pretrain.runtime.errors import UserError

TASK_TABLE = "encoder/word_VD"  # of a task's own words


class Table(NamedTuple):
    """Rows of an embedding.

    Attributes:
        rows_VD: a row for each id of the tokenizer.
        parameters: paths of the parameters that begin so, as "backbone/token_VD".
        notes: how many words have a vector, and what else the user should know.
    """

    rows_VD: np.ndarray
    parameters: tuple[str, ...]
    notes: list[str]

    def place(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns parameters whose tables begin with these rows; further rows stay as they are.

        Raises:
            UserError: there is no such parameter, or it is of another width.
        """
        flat = named_leaves.flatten(dict(params))
        (V, D), tables = self.rows_VD.shape, {}
        for name in self.parameters:
            if name not in flat:
                raise UserError(f"vectors.tables: there is no {name!r}, but {', '.join(flat)}")
            old = flat[name]
            if old.ndim != 2 or old.shape[1] != D or len(old) < V:
                raise UserError(
                    f"vectors: {name} is {tuple(old.shape)}, and {V:,} words have vectors {D} "
                    f"wide: set {'task.encoder.word_D' if 'word_VD' in name else 'model.D'}={D}"
                )
            # Where the table lies, which may be in shards.
            put = jax.jit(lambda x, rows: x.at[: len(rows)].set(rows), out_shardings=old.sharding)
            tables[name] = put(old, self.rows_VD)
        return dict(named_leaves.nest({**flat, **tables}))


def is_of_task(vectors: Mapping[str, Any]) -> bool:
    """Checks that a recipe's section `vectors` is of a task's own words, not of a backbone's."""
    return bool(vectors.get("path")) and TASK_TABLE in vectors.get("tables", ())


def build_table(
    tokenizer: Tokenizer,
    texts: Iterable[str],
    held_out: Iterable[str],
    seed: int,
    *,
    path: str,
    scale: float = 0.25,
    match_variance: bool = False,
    lower: bool = True,
    tables: Sequence[str] = ("backbone/token_VD",),
) -> tuple[Tokenizer, Table]:
    """Reads the vectors of all words of the texts; the others' are drawn, and that of id 0 is 0.

    Args:
        tokenizer: of whole words.
        texts, held_out: of training, and of the other splits.
        seed: of the vectors that are drawn.
        path: see `vector_files`.
        scale: unknown words' vectors are drawn within this on both sides of 0.
        match_variance: they are drawn so that each dimension has the variance of the known words'
            (Kim 2014, section 3.2), and not within `scale`.
        lower: a word that has no vector as it is spelled has that of its lower case.
        tables: paths of the parameters that begin so.

    Returns:
        (tokenizer with the new words behind its own, table)

    Raises:
        UserError: the tokens are no words, or the file is malformed.
    """
    if not hasattr(tokenizer, "words") or not hasattr(tokenizer, "extend"):
        raise UserError("vectors are of whole words: set tokens.name='words'")
    counts = [_count(tokenizer.words, part) for part in (texts, held_out)]
    # All splits together, so that the file is read once.
    everything = counts[0] + counts[1]
    spelled = everything.keys() | tokenizer.pieces
    wanted = spelled | {word.lower() for word in spelled} if lower else spelled
    vectors = vector_files.read(path, wanted)

    def vector_of(word: str) -> np.ndarray | None:
        vector_D = vectors.by_word.get(word)
        return vectors.by_word.get(word.lower()) if vector_D is None and lower else vector_D

    known = {word for word in spelled if vector_of(word) is not None}
    # The vocabulary grows by those words of held-out texts that have a vector: without them a model
    # whose vectors are fixed would know nothing of a known word (Kim 2014).
    # Sorted: the ids must not depend on the order of a set.
    if new := sorted(counts[1].keys() & known - set(tokenizer.pieces)):
        tokenizer = tokenizer.extend([" ".join(new)])
    rows_VD = _draw(len(tokenizer.pieces), vectors, seed, scale, match_variance)
    for row_D, word in zip(rows_VD, tokenizer.pieces, strict=True):
        vector_D = vector_of(word)
        if vector_D is not None:
            row_D[:] = vector_D
    rows_VD[0] = 0  # what fills rows up; of a task's own words, what stands for all others
    notes = [_coverage(path, tokenizer.pieces, known, everything), *vectors.notes]
    return tokenizer, Table(rows_VD, tuple(tables), notes)


def _count(split: Callable[[list[str]], list[list[str]]], texts: Iterable[str]) -> Counter[str]:
    counts = Counter[str]()
    for words in split(list(texts)):
        counts.update(words)
    return counts


def _draw(
    V: int, vectors: vector_files.Vectors, seed: int, scale: float, match_variance: bool
) -> np.ndarray:
    bound_D = np.full(vectors.D, scale)
    if match_variance:  # that of a uniform draw is a third of its bound's square
        bound_D = math.sqrt(3) * np.std(list(vectors.by_word.values()), 0)
    draws_VD = np.random.default_rng(seed).uniform(-1, 1, (V, vectors.D))
    return (draws_VD * bound_D).astype(np.float32)


def _coverage(
    path: str, pieces: Sequence[str], known: Collection[str], counts: Mapping[str, int]
) -> str:
    types, running = sum(word in known for word in pieces), sum(counts[word] for word in known)
    total = sum(counts.values())
    return (
        f"{path}: {types:,} of {len(pieces):,} words have vectors ({types / len(pieces):.1%}), "
        f"{running / max(total, 1):.1%} of {total:,} running words"
    )
