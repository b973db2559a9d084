"""Frames sentences that are split into words as rows, in which each word has a place.

A sentence longer than a row is read in several, which do not overlap and split no word.  So every
word is predicted once, and the words' places, row by row, are in the order of the words.  A
sentence may be of several texts, as a query and a title; they are framed as such, in one row.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from finetune.inputs.rows import RowBuilder
from pretrain.data.tokenizers.character_ids import PAD, spell_words
from pretrain.runtime.errors import UserError


class Part(NamedTuple):
    """Words of one sentence that stand in one row.

    Attributes:
        sentence: its number.
        texts: tokens of each word, by text.
    """

    sentence: int
    texts: list[list[np.ndarray]]


def frame_words(
    inputs: RowBuilder,
    sentences: Sequence[Sequence[str]],
    *,
    counts: Sequence[Sequence[int]] | None = None,
    last: bool = False,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Builds the arrays of `RowBuilder.arrays` and word_BL, true at one place of each word.

    Args:
        counts: of each sentence, the words of each of its texts; None: it is one text.
        last: the place of a word is its last token; False: its first.

    Returns:
        (arrays, notes of what was cut)

    Raises:
        UserError: a row has no room for a word or for all texts, or is read from its end.
    """
    inputs.format.require_forward("tags of words")
    nothing = encode_unknown(inputs)[:0]  # of the dtype and width of tokens
    room = inputs.L - len(inputs.row([nothing]).ids)
    if room < 1:
        raise UserError(f"batches.L={inputs.L} leaves no room for a word")
    lengths = counts or [[len(words)] for words in sentences]
    # A text begins as it does alone, whatever stands before it in the row.
    encoded = encode_words(inputs, _part_texts(sentences, lengths))
    parts, left = list[Part](), iter(encoded)
    for i, of_texts in enumerate(lengths):
        texts = [next(left) for _ in of_texts]
        if len(texts) == 1:
            parts += _split_sentence(i, texts[0], room)
        else:
            _check_room(inputs, i, texts)
            parts.append(Part(i, texts))
    rows = [
        inputs.row([np.concatenate([nothing, *words]) for words in part.texts]) for part in parts
    ]
    word_BL = np.zeros((len(rows), inputs.L), bool)
    for word_L, row, part in zip(word_BL, rows, parts, strict=True):
        for start, words in zip(row.starts, part.texts, strict=True):
            word_L[inputs.place(row).start + start + _find_places(words, last)] = True
    split = sum(count > 1 for count in Counter(part.sentence for part in parts).values())
    cut = sum(len(x) > room for words in encoded for x in words)
    notes = {
        f"{split:,} of {len(encoded):,} sentences are longer than {inputs.L} and read in "
        "parts": split,
        f"{cut:,} words are longer than a row and lost their ends": cut,
    }
    arrays = inputs.arrays(rows) | {"word_BL": word_BL}
    return arrays, [note for note, count in notes.items() if count]


def encode_words(inputs: RowBuilder, sentences: Sequence[Sequence[str]]) -> list[list[np.ndarray]]:
    """Returns the tokens of each word, encoded by itself; none becomes the unknown token."""
    # With the blank before it, as in running text: in byte-level BPE it is part of a word.
    texts = [[" " * (i > 0) + word for i, word in enumerate(words)] for words in sentences]
    distinct, none = (
        list(dict.fromkeys(x for words in texts for x in words)),
        encode_unknown(inputs),
    )
    encoded = [x if len(x) else none for x in inputs.tokens(distinct)]
    tokens = dict(zip(distinct, encoded, strict=True))
    return [[tokens[text] for text in words] for words in texts]


def encode_unknown(inputs: RowBuilder) -> np.ndarray:
    """Returns the unknown token as `RowBuilder.tokens` encodes it."""
    special = inputs.tokenizer.special
    # Byte-level BPE has no unknown token, as it can write every word but an empty one.
    id_ = special["unk"] if "unk" in special else special["eod"]
    if not inputs.W:
        return np.array([id_], np.int32)
    return spell_words([inputs.tokenizer.pieces[id_]], inputs.W)


def _split_sentence(sentence: int, words: list[np.ndarray], room: int) -> Iterator[Part]:
    # A word longer than a row loses its end.
    part: list[np.ndarray] = []
    for word in words:
        word = word[:room]
        if sum(map(len, part)) + len(word) > room:
            yield Part(sentence, [part])
            part = []
        part.append(word)
    yield Part(sentence, [part])


def _part_texts(
    sentences: Sequence[Sequence[str]], counts: Sequence[Sequence[int]]
) -> list[Sequence[str]]:
    """Parts the words of sentences by text."""
    ends = [np.cumsum(of_texts) for of_texts in counts]
    return [
        words[end - n : end]
        for words, of_texts, stops in zip(sentences, counts, ends, strict=True)
        for n, end in zip(of_texts, stops, strict=True)
    ]


def _check_room(inputs: RowBuilder, sentence: int, texts: list[list[np.ndarray]]) -> None:
    """Raises a UserError if a row has no room for all texts of a sentence."""
    marks = len(inputs.row([encode_unknown(inputs)[:0]] * len(texts)).ids)
    size = marks + sum(len(x) for words in texts for x in words)
    if size > inputs.L:
        # A text in several parts would have no one row, and a word that is cut has no tag.
        raise UserError(
            f"batches.L={inputs.L}: example {sentence + 1} takes {size} tokens, and texts whose "
            "words are tagged are not cut"
        )


def _find_places(words: list[np.ndarray], last: bool) -> np.ndarray:
    """Returns the index of each word's first or last token among all tokens."""
    lengths = np.array([len(x) for x in words], int)
    return lengths.cumsum() - (1 if last else lengths)


def scatter_to_words(
    values: Sequence[Sequence[int]], word_BL: np.ndarray, elsewhere: int
) -> np.ndarray:
    """Writes the value of each word of each sentence to its place: int32 [B, L]."""
    values_BL = np.full(word_BL.shape, elsewhere, np.int32)
    values_BL[word_BL] = [x for sentence in values for x in sentence]
    return values_BL


def gather_from_words(
    values_BL: np.ndarray, word_BL: np.ndarray, lengths: Sequence[int]
) -> list[list[int]]:
    """Returns the values at the words' places, sentence by sentence.

    Args:
        lengths: of the sentences, in words.
    """
    ends = np.cumsum([0, *lengths])
    values = values_BL[word_BL].tolist()
    return [values[end - n : end] for n, end in zip(lengths, ends[1:], strict=True)]


def scatter_characters(
    sentences: Sequence[Sequence[str]], word_BL: np.ndarray, W: int
) -> np.ndarray:
    """Writes the characters of each word to its place, elsewhere padding: int16 [B, L, W]."""
    chars_BLW = np.full((*word_BL.shape, W), PAD, np.int16)
    chars_BLW[word_BL] = spell_words([x for words in sentences for x in words], W)
    return chars_BLW


def normalize_word(word: str, zero_digits: bool = False) -> str:
    """Returns a word in lower case, with 0 for each of its digits if these are to be alike."""
    return re.sub("[0-9]", "0", word.lower()) if zero_digits else word.lower()


def list_frequent_words(
    sentences: Sequence[Sequence[str]], least: int, zero_digits: bool = False
) -> list[str]:
    """Returns normalized words that occur at least so often, the commonest first."""
    counts = Counter(normalize_word(word, zero_digits) for words in sentences for word in words)
    # The first to occur leads among equal counts: the order depends on the data alone.
    return [word for word, count in counts.most_common() if count >= least]
