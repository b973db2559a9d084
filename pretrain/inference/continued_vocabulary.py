"""Decides what vocabulary a run has that goes on from another, and as what its rows begin."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from pretrain.data.tokenizers import Tokenizer, registry, saved_files
from pretrain.inference.run import Run
from pretrain.runtime.errors import UserError

TOKENS = ("run", "recipe")
WORDS = "words"  # the tokenizer whose pieces are words: of others, a row is no matter of spelling


class VocabularyRows(NamedTuple):
    """The rows of a table of tokens, as those of another.

    Attributes:
        numbers_V: of each row its number in the other table; -1: it has none there.
        known: rows of the other table that are of tokens; those behind are padding, or marks.
        is_matched: by the words that they are of, not by their numbers.
    """

    numbers_V: np.ndarray
    known: int
    is_matched: bool = False

    def place(self, old: np.ndarray, axis: int) -> np.ndarray:
        """Places the rows of the other table, [V] along the axis; others are the mean of these."""
        known = np.take(old, range(self.known), axis)
        # In float64: tens of thousands of rows are added up one by one, which float32 would round.
        mean = known.mean(axis, dtype=np.float64, keepdims=True)
        is_new = self.numbers_V < 0
        # For a row without one, any: it is the mean's place.
        placed = np.take(known, np.where(is_new, 0, self.numbers_V), axis)
        is_new = is_new.reshape([-1 if i == axis else 1 for i in range(old.ndim)])
        return np.where(is_new, mean, placed).astype(old.dtype)

    def describe(self) -> str:
        """Says what becomes of a parameter with these rows."""
        new = int((self.numbers_V < 0).sum())
        if not self.is_matched:
            return f"grown: {new} rows, the mean of the old"
        return (
            f"matched by word: {len(self.numbers_V) - new} of {self.known} rows restored, "
            f"{new} are the mean of the old"
        )


def extend_rows(known: int, more: int) -> VocabularyRows:
    """Returns the rows of a vocabulary of `known` tokens with `more` behind them."""
    return VocabularyRows(np.r_[np.arange(known), np.full(more, -1)], known)


def match_words(old: Sequence[str], new: Sequence[str], V: int) -> VocabularyRows:
    """Matches the rows of two vocabularies by the words that they are of.

    Args:
        old: the words of one.
        new: those of the other; the first V have rows.
        V: rows of the other; some may be of no word.
    """
    numbers = {word: i for i, word in enumerate(old)}
    numbers_V = np.full(V, -1)
    numbers_V[: len(new)] = [numbers.get(word, -1) for word in new[:V]]
    return VocabularyRows(numbers_V, len(old), is_matched=True)


def resolve_tokens(
    recipe: ConfigDict, run: Run, resumes: bool
) -> tuple[int, Mapping[str, Any], str]:
    """Decides whose vocabulary a run has that goes on from another, and how large it is.

    Args:
        recipe: of the run that goes on.
        run: the other one.
        resumes: `run` is the one that goes on, and not what it goes on from.

    Returns:
        (model.V, section `corpus.tokens`, what the user should know)

    Raises:
        UserError: the vocabulary cannot be as the recipe asks.
    """
    V, tokens = run.config.model.V, recipe.corpus.tokens
    if not V:  # ELMo's published weights read characters, and bring no words to predict
        if tokens.get("extend"):
            raise UserError(
                f"corpus.tokens.extend={tokens.extend}: {run.workdir} reads characters, and has no "
                "vocabulary to add words to"
            )
        return recipe.model.V, tokens, f"the vocabulary is the recipe's: {run.workdir} has none"
    if takes_own_words(recipe):
        if not (tokens.name == WORDS == run.tokenizer.__module__.rpartition(".")[2]):
            raise UserError(
                "init_tokens='recipe' matches words: corpus.tokens.name has to be 'words', here "
                f"and in {run.workdir}"
            )
        note = "the vocabulary is the recipe's: rows are matched by word"
        return recipe.model.V, tokens, note + _describe_other_split(tokens, run)
    extend = tokens.get("extend", 0)
    if resumes:
        same = run.config.corpus.tokens
        if extend != (before := same.get("extend", 0)):
            raise UserError(
                f"corpus.tokens.extend={extend}: the run in {run.workdir} began with {before}, and "
                "its vocabulary stays: go on from it with init, in another --workdir"
            )
        return V, same, ""
    saved = dict(name="saved", folder=f"{recipe.init}/tokenizer", extend=extend)
    # A word that is read by its characters is one, whether or not there is a row to predict it by.
    rest = {"rest": True} if run.reads_characters else {}
    if extend or rest:
        saved |= rest | {"digest": saved_files.hash_saved(run.workdir / "tokenizer")}
    if not extend:
        return V, saved, ""
    # Rows behind the tokenizer's are padding, or marks of a task: no new word begins as these.
    known = min(V, run.tokenizer.V)
    note = f"model.V={known + extend}: {run.workdir} has {known} words or pieces, {extend} are new"
    return known + extend, saved | {"known": known}, note


def _describe_other_split(tokens: Mapping[str, Any], run: Run) -> str:
    """Says how a text is split into words otherwise than a run's was; "": it is not."""
    ours = registry.settings(**tokens)
    theirs = {name: getattr(run.tokenizer, name) for name in ("split", "lower")}
    if different := {name: x for name, x in theirs.items() if ours[name] != x}:
        here, there = (
            ", ".join(f"{name}={fields[name]!r}" for name in different) for fields in (ours, theirs)
        )
        return f"; corpus.tokens.{here}, where {run.workdir} has {there}: fewer words may match"
    return ""


def takes_own_words(config: ConfigDict) -> bool:
    """Checks whether a run that goes on is to have a vocabulary of words of its own.

    Raises:
        UserError: the recipe asks for neither.
    """
    choice = config.get("init_tokens", TOKENS[0])
    if choice not in TOKENS:
        raise UserError(f"init_tokens={choice!r} is none of {', '.join(TOKENS)}")
    return choice == TOKENS[1]


def match_rows(config: ConfigDict, run: Run, tokenizer: Tokenizer) -> VocabularyRows | None:
    """Matches the rows of a run that goes on with those of the other; None: they are the same.

    Args:
        config: the recipe that `resolve_tokens` has settled.
        run: the other one.
        tokenizer: of the run that goes on.
    """
    V, tokens = run.config.model.V, config.corpus.tokens
    if takes_own_words(config):
        return match_words(run.tokenizer.pieces[:V], tokenizer.pieces, config.model.V)
    return extend_rows(tokens.known, tokens.extend) if tokens.get("extend") else None
