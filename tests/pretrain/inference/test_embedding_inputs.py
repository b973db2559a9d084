"""Words are read as the run's tokenizer and its characters say."""

import numpy as np
import pytest

from pretrain.inference.embedder import Embedder
from pretrain.inference.embedding_inputs import Pieces
from pretrain.inference.layer_selection import parse_layers
from tests.support.tiny_models import layout
from tests.support.xlnet_inputs import off

pytest_plugins = ["tests.support.tiny_models"]
pytestmark = pytest.mark.usefixtures("exactly")


def test_words_are_read_by_their_characters_and_never_as_marks(run):
    embedder = Embedder(run("bilm"), layout(), parse_layers("0", count=3), tokens=64)
    line = "ralor never-seen ralor </S> <UNK>"
    [found] = embedder([(0, [line])])
    assert found.tokens == line.split()
    one, other, again, mark, unknown = found.vectors
    np.testing.assert_array_equal(one, again)
    assert off(other, one) > 0.01
    np.testing.assert_array_equal(mark, unknown)


def test_a_word_beyond_the_models_vocabulary_is_the_unknown_one(run):
    tokenizer, V = run("bilm").tokenizer, 10
    line = " ".join([*tokenizer.pieces[5:15], "never-seen"])
    [tokens], [ids], _ = Pieces(tokenizer, V)([line])
    assert ids.tolist() == [5, 6, 7, 8, 9, *[tokenizer.special["unk"]] * 6]
    assert tokens == [*tokenizer.pieces[5:15], "<UNK>"]
