"""Reads sentences as vectors, by a run or by words' vectors, whole or without some tokens."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from finetune.inputs import vector_files
from finetune.metrics.sentence_vectors import mean_without
from pretrain.data.tokenizers import words


class RunReader:
    """Reads sentences with a run's backbone: pretrained, imported or fine-tuned."""

    def __init__(self, name: str, embedder: Any):
        """
        Args:
            embedder: an `Embedder` that pools, or one that gives a vector for each token and mark:
                these are averaged here, all or without some of them, so that one pass is enough.
        """
        self.name, self.embedder, self.averages = name, embedder, not embedder.pool

    def list_tokens(self, texts: Sequence[str]) -> list[list[str]]:
        # As they are read, with the marks and without what is cut.
        block = self.embedder.batcher.make_block(0, list(texts))
        return [row.tokens for rows in block.batches for row in rows]

    def read(self, texts: Sequence[str], left_out: Sequence[frozenset[str]]) -> np.ndarray:
        if self.averages:
            # As they come: all tokens' vectors together could be more than memory holds.
            sentences = self.embedder([(0, list(texts))])
            parts = ((x.number, x.vectors, x.tokens) for x in sentences)
            return average_tokens(parts, len(texts), left_out)
        return np.stack([sentence.vectors for sentence in self.embedder.read(texts)])[None]


class WordReader:
    """Reads sentences as means of words' vectors in a file; words without one do not count."""

    averages = True

    def __init__(self, path: Path):
        """
        Args:
            path: see `finetune.inputs.vector_files`.
        """
        self.name, self.path = str(path), path
        self.splitter = words.Tokenizer([*words.MARKS], lower=True)

    def list_tokens(self, texts: Sequence[str]) -> list[list[str]]:
        return self.splitter.words(texts)

    def read(self, texts: Sequence[str], left_out: Sequence[frozenset[str]]) -> np.ndarray:
        sentences = self.list_tokens(texts)
        wanted = {word for sentence in sentences for word in sentence}
        vectors = vector_files.read(str(self.path), wanted)

        def parts() -> Iterator[tuple[int, np.ndarray, list[str]]]:
            for number, sentence in enumerate(sentences):
                known = [word for word in sentence if word in vectors.by_word]
                rows = [vectors.by_word[word] for word in known]
                yield number, np.array(rows).reshape(len(known), vectors.D), known

        return average_tokens(parts(), len(texts), left_out)


def average_tokens(
    sentences: Iterable[tuple[int, np.ndarray, list[str]]],
    count: int,
    left_out: Sequence[frozenset[str]],
) -> np.ndarray:
    """Averages the tokens of each sentence but those left out: [K, count, D].

    Args:
        sentences: number, vectors [tokens, D] and tokens of each, in any order.
    """
    means = {i: mean_without(vectors, names, left_out) for i, vectors, names in sentences}
    return np.stack([means[i] for i in range(count)], 1).astype(np.float32)
