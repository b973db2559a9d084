"""Rows go on from either end of the text, sentence by sentence, and repeat exactly."""

import itertools
from typing import Any

import numpy as np
import pytest

from pretrain.data import batches as layouts
from pretrain.data.batches.loader import read_batches
from tests.support.batch_text import order_of, read_epoch, sentences_of
from tests.support.tokenizer_data import spell_word

FIELDS: dict[str, Any] = {"B": 3, "L": 7, "characters": 12}
BOS = 0


def build(corpus, split="train", **fields):
    return layouts.build("bidirectional", corpus, split=split, **FIELDS | fields)


def forwards(corpus, documents):
    """Yields (what is read, what is predicted from it, what opens), one place at a time."""
    for document in documents:
        for number, sentence in enumerate(sentences_of(corpus, document)):
            for i, word in enumerate(sentence):
                opens = 0 if i else 1 if number else 2
                yield sentence[i - 1] if i else BOS, word, opens


def backwards(corpus, documents):
    for document in reversed(documents):
        for number, sentence in enumerate(reversed(sentences_of(corpus, document))):
            for i, word in enumerate(reversed(sentence)):
                opens = 0 if i else 1 if number else 2
                yield word, sentence[-i - 2] if i + 1 < len(sentence) else BOS, opens


READ = (forwards, backwards)
NAMES = ("tokens_BZL", "next_BZL", "boundary_BZL")


@pytest.mark.parametrize("B", [1, 3, 8])
def test_rows_go_on_through_the_text_of_every_epoch_from_either_end(corpus_of_words, B):
    layout = build(corpus_of_words, B=B, seed=4)
    for epoch in (0, 1):
        documents = order_of(layout, epoch)
        assert sorted(documents) == corpus_of_words.splits["train"].tolist()
        batches = read_epoch(layout, epoch, axis=2)
        share = layout.steps_per_epoch * layout.L
        for z, read in enumerate(READ):
            text = np.array([*read(corpus_of_words, documents)][: B * share]).reshape(B, share, 3)
            text[:, 0, 2] = 2
            for i, name in enumerate(NAMES):
                np.testing.assert_array_equal(batches[name][:, z], text[:, :, i], name)


def test_training_leaves_less_than_a_step_of_each_row_to_the_next_epoch(corpus_of_words):
    layout = build(corpus_of_words)
    text = sum(1 for _ in forwards(corpus_of_words, corpus_of_words.splits["train"].tolist()))
    read = layout.steps_per_epoch * layout.B * layout.L
    assert 0 <= text - read < layout.B * layout.L + layout.L
    for step in (0, layout.steps_per_epoch - 1, 10 * layout.steps_per_epoch):
        assert layout.batch(step)["loss_mask_BZL"].all()
        assert layout.batch(step)["weight_B"].tolist() == [1] * layout.B


@pytest.mark.parametrize(("B", "L"), [(1, 1000), (1, 5), (4, 9), (64, 3), (500, 20)])
def test_held_out_text_is_predicted_once_in_each_direction_in_order(corpus_of_words, B, L):
    layout = build(corpus_of_words, "held_out", B=B, L=L, characters=0)
    rows: list[list[list]] = [[[] for _ in range(B)] for _ in READ]
    for _, batch in read_batches(layout, threads=1, prefetch=1):
        predicted = batch["loss_mask_BZL"]
        np.testing.assert_array_equal(predicted.any((1, 2)), batch["weight_B"] == 1)
        for z, row in itertools.product((0, 1), range(B)):
            pairs = np.stack([batch["tokens_BZL"][row, z], batch["next_BZL"][row, z]], axis=1)
            rows[z][row] += pairs[predicted[row, z]].tolist()
    for z, read in enumerate(READ):
        places = read(corpus_of_words, corpus_of_words.splits["held_out"].tolist())
        text = [[inputs, targets] for inputs, targets, _ in places]
        assert list(itertools.chain(*rows[z])) == text


def test_words_come_with_their_characters(corpus_of_words):
    batch = build(corpus_of_words).batch(5)
    chars_BZLW = batch["chars_BZLW"]
    words = [corpus_of_words.tokenizer.pieces[i] for i in batch["tokens_BZL"].ravel()]
    assert chars_BZLW.shape == (3, 2, 7, 12)
    assert chars_BZLW.reshape(-1, 12).tolist() == [spell_word(word, 12) for word in words]
    assert "chars_BZLW" not in build(corpus_of_words, characters=0).batch(5)


def test_two_layouts_of_a_corpus_share_the_characters(corpus_of_words):
    train, held_out = build(corpus_of_words), build(corpus_of_words, "held_out", B=2)
    assert train.table.characters_VW is held_out.table.characters_VW
