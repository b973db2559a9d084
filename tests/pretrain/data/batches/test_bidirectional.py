"""Rows go on from either end of the text, sentence by sentence, and repeat exactly."""

import itertools
from typing import Any

import numpy as np
import pytest

from pretrain.data import batches as layouts
from pretrain.data.batches.loader import stream
from pretrain.data.tokenizers.character_ids import characters
from pretrain.runtime.errors import UserError
from tests.support import corpora
from tests.support.tokenizer_data import spell_word

FIELDS: dict[str, Any] = {"B": 3, "L": 7, "characters": 12}
BOS, EOS = 0, 1


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("directions")
    return corpora.make(folder, tokens={"name": "words"}, held_out=0.2)


def build(corpus, split="train", **fields):
    return layouts.build("bidirectional", corpus, split=split, **FIELDS | fields)


def sentences_of(corpus, document):
    """Lists of ids, each with its </S>."""
    begin, end = corpus.documents[document : document + 2]
    cuts = [cut for cut in corpus.sentences.tolist() if begin <= cut <= end]
    return [corpus.tokens[i:j].tolist() for i, j in itertools.pairwise(cuts)]


def forwards(corpus, documents):
    """(what is read, what is told from it, what opens) of each place, one place at a time."""
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


def order(layout, epoch):
    """The documents of an epoch in reading order, found by where its stream has them."""
    begins = layout.epoch(epoch).shift + layout.epoch(epoch).begins[:-1]
    return np.searchsorted(layout.corpus.documents, begins).tolist()


def epoch_of(layout, n):
    """All batches of the n-th epoch by name, one after the other along L."""
    steps = range(n * layout.steps_per_epoch, (n + 1) * layout.steps_per_epoch)
    batches = [layout.batch(step) for step in steps]
    return {name: np.concatenate([b[name] for b in batches], axis=2) for name in NAMES}


@pytest.mark.parametrize("B", [1, 3, 8])
def test_rows_go_on_through_the_text_of_every_epoch_from_either_end(corpus, B):
    layout = build(corpus, B=B, seed=4)
    for epoch in (0, 1):
        documents = order(layout, epoch)
        assert sorted(documents) == corpus.splits["train"].tolist()
        batches = epoch_of(layout, epoch)
        share = layout.steps_per_epoch * layout.L
        for z, read in enumerate(READ):
            text = np.array([*read(corpus, documents)][: B * share]).reshape(B, share, 3)
            text[:, 0, 2] = 2
            for i, name in enumerate(NAMES):
                np.testing.assert_array_equal(batches[name][:, z], text[:, :, i], name)


def test_documents_come_in_another_order_each_epoch_and_with_each_seed(corpus):
    layout = build(corpus, seed=4)
    assert order(layout, 0) != order(layout, 1)
    assert order(layout, 0) != order(build(corpus, seed=5), 0)
    assert order(build(corpus, "held_out"), 0) == corpus.splits["held_out"].tolist()


def test_training_leaves_less_than_a_step_of_each_row_to_the_next_epoch(corpus):
    layout = build(corpus)
    text = sum(1 for _ in forwards(corpus, corpus.splits["train"].tolist()))
    read = layout.steps_per_epoch * layout.B * layout.L
    assert 0 <= text - read < layout.B * layout.L + layout.L
    for step in (0, layout.steps_per_epoch - 1, 10 * layout.steps_per_epoch):
        assert layout.batch(step)["loss_mask_BZL"].all()
        assert layout.batch(step)["weight_B"].tolist() == [1] * layout.B


@pytest.mark.parametrize(("B", "L"), [(1, 1000), (1, 5), (4, 9), (7, 16), (64, 3), (500, 20)])
def test_held_out_text_is_told_once_in_each_direction_in_order(corpus, B, L):
    layout = build(corpus, "held_out", B=B, L=L, characters=0)
    rows: list[list[list]] = [[[] for _ in range(B)] for _ in READ]
    for _, batch in stream(layout, threads=1, prefetch=1):
        told = batch["loss_mask_BZL"]
        np.testing.assert_array_equal(told.any((1, 2)), batch["weight_B"] == 1)
        for z, row in itertools.product((0, 1), range(B)):
            pairs = np.stack([batch["tokens_BZL"][row, z], batch["next_BZL"][row, z]], axis=1)
            rows[z][row] += pairs[told[row, z]].tolist()
    for z, read in enumerate(READ):
        text = [list(pair) for *pair, _ in read(corpus, corpus.splits["held_out"].tolist())]
        assert list(itertools.chain(*rows[z])) == text


def test_one_direction_tells_what_the_other_reads(corpus):
    layout = build(corpus, "held_out", B=1, L=10)
    assert layout.size % layout.L  # the last row is not full
    batches = {name: array[0, :, : layout.size] for name, array in epoch_of(layout, 0).items()}
    tokens_ZT, next_ZT = batches["tokens_BZL"], batches["next_BZL"]
    np.testing.assert_array_equal(next_ZT[0], tokens_ZT[1, ::-1])
    np.testing.assert_array_equal(next_ZT[1], tokens_ZT[0, ::-1])


def test_marks_are_read_and_told_at_the_ends_of_sentences_alone(corpus):
    batches = epoch_of(build(corpus, B=1, seed=2), 0)
    tokens_ZT, next_ZT, opens_ZT = (batches[name][0] for name in NAMES)
    assert not (tokens_ZT[0] == EOS).any()
    assert not (next_ZT[0] == BOS).any()
    assert not (tokens_ZT[1] == BOS).any()
    assert not (next_ZT[1] == EOS).any()
    np.testing.assert_array_equal(tokens_ZT[0] == BOS, opens_ZT[0] > 0)
    np.testing.assert_array_equal(tokens_ZT[1] == EOS, opens_ZT[1] > 0)
    documents = len(corpus.splits["train"])
    assert documents - 1 <= (opens_ZT == 2).sum(1).min() <= documents


def test_words_come_with_their_characters(corpus):
    batch = build(corpus).batch(5)
    chars_BZLW = batch["chars_BZLW"]
    words = [corpus.tokenizer.pieces[i] for i in batch["tokens_BZL"].ravel()]
    assert chars_BZLW.shape == (3, 2, 7, 12)
    assert chars_BZLW.reshape(-1, 12).tolist() == [spell_word(word, 12) for word in words]
    assert "chars_BZLW" not in build(corpus, characters=0).batch(5)


def test_two_layouts_of_a_corpus_share_the_characters(corpus):
    train, held_out = build(corpus), build(corpus, "held_out", B=2)
    assert train.table.characters_VW is held_out.table.characters_VW


def test_what_does_not_fit_is_refused_at_the_door(corpus, tmp_path):
    for fields, reason in [
        ({"B": 0}, "B=0, L=7: a batch needs a row"),
        ({"L": 0}, "B=3, L=0: a batch needs a row"),
        ({"characters": 2}, "characters=2: "),
        ({"B": 9000}, r"training split has \d+ windows of 7 tokens but batch has 9000 rows"),
    ]:
        with pytest.raises(UserError, match=reason):
            build(corpus, **fields)
    pieces = corpora.make(tmp_path)
    with pytest.raises(UserError, match=r"no .bos. and no .eos.: .*tokens\.name='words'"):
        build(pieces)


def test_unknown_words_of_a_short_vocabulary_are_spelled_unk(tmp_path):
    corpus = corpora.make(tmp_path, tokens={"name": "words", "types": 40})
    batch = build(corpus).batch(1)
    unknown = batch["tokens_BZL"] == 2
    assert unknown.sum() > 5
    spelled = batch["chars_BZLW"][unknown]
    np.testing.assert_array_equal(spelled, characters(["<UNK>"] * len(spelled), 12))
