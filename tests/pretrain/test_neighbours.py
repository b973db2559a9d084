"""Occurrences of a word, and those that are like them."""

import json

import h5py
import numpy as np
import pytest

from pretrain import neighbours
from pretrain.runtime.errors import UserError
from tests.support import commands

SENTENCES = ["the bank of a river", "A Bank lends", "the bank pays", "bank and bank"]
DIRECTIONS = {0: (1.0, 0.0), 1: (0.0, 3.0), 2: (0.1, 1.0), 3: (0.9, 0.1)}


@pytest.fixture
def embedded(tmp_path):
    """Sentences whose "bank" points where `DIRECTIONS` says, and all else nowhere near."""
    path = tmp_path / "vectors.h5"
    with h5py.File(path, "w") as file:
        for number, sentence in enumerate(SENTENCES):
            tokens = sentence.split()
            vectors = np.tile([-1.0, -1.0], (len(tokens), 1)).astype(np.float32)
            vectors[[token.lower() == "bank" for token in tokens]] = DIRECTIONS[number]
            dataset = file.create_dataset(str(number), data=vectors)
            dataset.attrs["tokens"] = json.dumps(tokens)
        file["sentence_to_index"] = np.array([0])
    return path


def test_occurrences_in_other_sentences_come_nearest_first(embedded):
    ranked = neighbours.rank_neighbours(neighbours.read_places(embedded, "bank"), nearest=2)
    found = [(place.sentence, [other.sentence for _, other in near]) for place, near in ranked]
    last = ("3", ["0", "2"])
    assert found == [("0", ["3", "3"]), ("1", ["2", "3"]), ("2", ["1", "3"]), last, last]
    likeness = ranked[1][1][0][0]
    assert likeness == pytest.approx(np.cos(np.arctan(0.1)), rel=1e-6)


def test_other_words_can_be_neighbours_too(embedded):
    found = neighbours.read_places(embedded, "bank")
    ranked = neighbours.rank_neighbours(found, nearest=99, others=True)
    assert [len(near) for _, near in ranked] == [9, 11, 11, 11, 11]


def test_layers_count_by_their_mean():
    layers = np.array([[[2.0, 0.0]], [[0.0, 2.0]]], np.float32)
    np.testing.assert_allclose(neighbours.normalize_vector(layers, 0), [0.5**0.5] * 2, rtol=1e-6)


def test_the_command_shows_contexts(embedded):
    done = commands.run("-m", "pretrain.neighbours", embedded, "--word=BANK")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the [bank] of a river\n    0.994  [bank] and bank\n")


def test_what_is_not_there_is_named(embedded, tmp_path):
    with pytest.raises(UserError, match="token 'money'"):
        neighbours.read_places(embedded, "money")
    with pytest.raises(UserError, match=r"pretrain.embed did not write this"):
        neighbours.read_places(tmp_path / "none.h5", "bank")
