"""A run gives from Python what its commands give, one text by itself or several together."""

import numpy as np
import pytest

import quartet
from pretrain.inference.embedder import Embedder
from pretrain.inference.generator import Writer, join_pieces
from pretrain.inference.layer_selection import parse_pool
from pretrain.inference.sampling import Sampler
from pretrain.runtime.errors import UserError
from quartet.trained_run import to_example
from tests.support.tiny_models import layout

pytest_plugins = ["tests.support.tiny_models"]
TEXTS = ["the senate", "a house of the people"]


@pytest.fixture(scope="module")
def loaded(run):
    return quartet.load(run("clm").workdir)


def test_vectors_are_those_of_the_embedder(loaded, run):
    choice, kind = parse_pool("mean", count=run("clm").backbone.N + 1)
    expected = Embedder(run("clm"), layout(), choice, pool=kind).read(TEXTS)
    vectors_ND = loaded.embed(TEXTS)
    np.testing.assert_allclose(vectors_ND, [x.vectors for x in expected], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loaded.embed(TEXTS[0]), vectors_ND[0], rtol=1e-5, atol=1e-6)
    cosines = loaded.similarity(TEXTS, TEXTS[::-1])
    np.testing.assert_allclose(np.diag(cosines[:, ::-1]), 1, rtol=1e-5)


@pytest.mark.slow
def test_texts_are_those_of_the_writer(loaded, run):
    writer = Writer(run("clm"), layout(), Sampler(top_k=5))
    expected = join_pieces(writer.generate(TEXTS, tokens=4, seed=1), 2)
    assert loaded.generate(TEXTS, tokens=4, top_k=5, seed=1) == expected


def test_what_a_run_cannot_do_is_refused_in_a_line(loaded, tmp_path):
    with pytest.raises(UserError, match="was not fine-tuned"):
        loaded.predict("a text")
    with pytest.raises(UserError, match="holds no run"):
        quartet.load(tmp_path)


class Pairs:
    plain_field = "texts"


def test_an_example_is_a_text_a_tuple_of_texts_or_a_dict():
    assert to_example("a", Pairs)["texts"] == ["a"]
    assert to_example(("a", "b"), Pairs)["texts"] == ["a", "b"]
    assert to_example({"words": ["a"]}, Pairs)["words"] == ["a"]
    with pytest.raises(UserError, match="the example, line 1"):
        to_example("", Pairs)
