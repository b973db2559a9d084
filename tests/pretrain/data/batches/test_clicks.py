"""Rows of clicks are what fine-tuning frames of the same texts, and their labels are read."""

import itertools

import numpy as np
import pytest

from finetune.inputs.rows import RowBuilder, truncate_lengths
from pretrain.data import batches
from pretrain.data.batches import clicks
from pretrain.inference.text_format import load_format
from pretrain.runtime.errors import UserError
from tests.support import corpora
from tests.support.batch_text import read_epoch, sentences_of


@pytest.mark.parametrize("L", [14, 48])
def test_rows_are_framed_as_for_fine_tuning(corpus_of_clicks, L):
    corpus = corpus_of_clicks
    layout = batches.build("clicks", corpus, split="held_out", B=5, L=L, texts=2)
    found, (zero, one) = read_epoch(layout), corpus.tokenizer.encode(["0", "1"])
    inputs = RowBuilder(load_format("bert_three"), corpus.tokenizer, L)
    rows, clicked = [], []
    for document in corpus.splits["held_out"]:
        *texts, label = sentences_of(corpus, document)
        rows.append(inputs.row([np.array(text) for text in texts]))
        assert label[:1] in (list(zero), list(one))
        clicked.append(label[:1] == list(one))
    real = found["weight_B"] > 0
    for name, x in inputs.arrays(rows).items():
        np.testing.assert_array_equal(np.where(found["valid_BL"][real], found[name][real], 0), x)
    assert found["consecutive_B"][real].tolist() == clicked
    assert not found["valid_BL"][~real].any()


def test_too_long_texts_lose_a_token_of_the_longest_at_a_time():
    lengths = np.array([*itertools.product((0, 1, 4, 9, 10), repeat=3)])
    for room in (3, 8, 20, 40):
        expected = [truncate_lengths(row, room)[0] for row in lengths.tolist()]
        np.testing.assert_array_equal(clicks.fit_lengths(lengths, room), expected)


def test_a_vocabulary_without_both_labels_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("ba bo\nbu\n\nbe ba\nbo\n\n" * 4)
    fields = dict(documents="blank", sentences="line", tokens={"name": "wordpiece", "V": 16})
    corpus = corpora.load(f"text:{tmp_path}/a.txt", tmp_path, held_out=0.0, **fields)
    with pytest.raises(UserError, match="does not tell 0 from 1"):
        batches.build("clicks", corpus, B=2, L=24, texts=1)
