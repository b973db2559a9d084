"""Texts stand between the marks of the vocabulary, and nothing stands behind them."""

import types

import numpy as np

from pretrain.data.batches import framed_rows


def corpus_of(**special):
    word_start_V = np.arange(20) % 2 == 0
    tokenizer = types.SimpleNamespace(special=special, word_start_V=word_start_V)
    return types.SimpleNamespace(tokens=np.arange(10, 20), tokenizer=tokenizer)


def test_places_outside_of_the_corpus_become_marks_or_padding():
    column = np.arange(5)
    batch = framed_rows.lay_out_rows(
        corpus_of(cls=1, sep=2, pad=3),
        np.array([[-1, 0, 1, 2, 3], [7, 8, 9, 10, 11]]),
        is_sep_BL=column == np.array([[3], [3]]),
        segments_BL=np.zeros((2, 5), bool),
        valid_BL=np.tile(column < 4, (2, 1)),
    )
    tokens = [[1, 10, 11, 2, 3], [1, 18, 19, 2, 3]]
    assert batch["tokens_BL"].tolist() == tokens
    assert batch["word_starts_BL"].tolist() == [[x % 2 == 0 for x in row] for row in tokens]
