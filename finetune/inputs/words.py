"""Sentences that are words already, as rows: each word by itself becomes pieces, and keeps a place.

A sentence longer than a row is read in several, which share nothing and part no word: so every
word is told, once, and row by row the words' places stand in the order of the words.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from finetune.inputs.rows import RowBuilder
from pretrain.data.tokenizers.character_ids import spell_words
from pretrain.runtime.errors import UserError


class Part(NamedTuple):
    """Words of one sentence that stand in one row: its number, and of each word the pieces."""

    sentence: int
    words: list[np.ndarray]


def rows(
    inputs: RowBuilder, sentences: Sequence[Sequence[str]], *, last: bool = False
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays of `RowBuilder.arrays`; and word_BL, true at the one place that speaks for a word.

    Args:
        last: a word's last piece speaks for it; False: its first.

    Returns:
        (arrays, notes of what was cut)

    Raises:
        UserError: a row has no room for a word.
    """
    nothing = unknown(inputs)[:0]
    room = inputs.L - len(inputs.row([nothing]).ids)
    if room < 1:
        raise UserError(f"batches.L={inputs.L} leaves no room for a word")
    found = pieces(inputs, sentences)
    parts = [part for i, words in enumerate(found) for part in _parts(i, words, room)]
    made = [inputs.row([np.concatenate([nothing, *part.words])]) for part in parts]
    word_BL = np.zeros((len(made), inputs.L), bool)
    for word_L, row, part in zip(word_BL, made, parts, strict=True):
        word_L[inputs.place(row).start + row.starts[0] + _places(part.words, last)] = True
    several = sum(count > 1 for count in Counter(part.sentence for part in parts).values())
    cut = sum(len(x) > room for words in found for x in words)
    notes = {
        f"{several:,} of {len(found):,} sentences are longer than {inputs.L} and read in "
        "parts": several,
        f"{cut:,} words are longer than a row and lost their ends": cut,
    }
    arrays = inputs.arrays(made) | {"word_BL": word_BL}
    return arrays, [note for note, count in notes.items() if count]


def pieces(inputs: RowBuilder, sentences: Sequence[Sequence[str]]) -> list[list[np.ndarray]]:
    """Of each word of each sentence; the unknown token for a word of none.

    As in running text with the blank before it, which in byte-level BPE is part of a word.
    """
    texts = [[" " * (i > 0) + word for i, word in enumerate(words)] for words in sentences]
    each, none = list(dict.fromkeys(x for words in texts for x in words)), unknown(inputs)
    found = [x if len(x) else none for x in inputs.tokens(each)]
    known = dict(zip(each, found, strict=True))
    return [[known[text] for text in words] for words in texts]


def unknown(inputs: RowBuilder) -> np.ndarray:
    """One piece; byte-level BPE, which knows every word, has the end of the document for none."""
    special = inputs.tokenizer.special
    id_ = special["unk"] if "unk" in special else special["eod"]
    if not inputs.W:
        return np.array([id_], np.int32)
    return spell_words([inputs.tokenizer.pieces[id_]], inputs.W)


def _parts(sentence: int, words: list[np.ndarray], room: int) -> Iterator[Part]:
    """All words, as many to a row as fit in; one that alone is too long loses its end."""
    kept: list[np.ndarray] = []
    for word in words:
        word = word[:room]
        if sum(map(len, kept)) + len(word) > room:
            yield Part(sentence, kept)
            kept = []
        kept.append(word)
    yield Part(sentence, kept)


def _places(words: list[np.ndarray], last: bool) -> np.ndarray:
    """Of each word's first or last piece among all pieces."""
    lengths = np.array([len(x) for x in words], int)
    return lengths.cumsum() - (1 if last else lengths)


def spread(values: Sequence[Sequence[int]], word_BL: np.ndarray, elsewhere: int) -> np.ndarray:
    """What each sentence has for each word, at the words' places: int32 [B, L]."""
    made_BL = np.full(word_BL.shape, elsewhere, np.int32)
    made_BL[word_BL] = [x for each in values for x in each]
    return made_BL


def gathered(values_BL: np.ndarray, word_BL: np.ndarray, lengths: Sequence[int]) -> list[list[int]]:
    """The inverse: what stands at the words' places, sentence by sentence.

    Args:
        lengths: of the sentences, in words.
    """
    ends = np.cumsum([0, *lengths])
    values = values_BL[word_BL].tolist()
    return [values[end - n : end] for n, end in zip(lengths, ends[1:], strict=True)]


def frequent(sentences: Sequence[Sequence[str]], least: int) -> list[str]:
    """Words in lower case that occur at least so often, the commonest first."""
    counts = Counter(word.lower() for words in sentences for word in words)
    return [word for word, count in counts.most_common() if count >= least]
