"""A run gives from Python what its commands give, one text by itself or several together."""

import numpy as np
import pytest

import quartet
from pretrain.inference.embedder import Embedder
from pretrain.inference.generator import Writer, join_pieces
from pretrain.inference.layer_selection import parse_pool
from pretrain.inference.sampling import Sampler
from pretrain.runtime.errors import UserError
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
    with pytest.raises(UserError, match=r"takes a run's folder, and was given 3 \(int\)"):
        quartet.load(3)


def test_layers_stand_before_tokens_and_behind_texts(loaded):
    tokens_LD = loaded.embed(TEXTS[0], pool="")
    layers_NLD = loaded.embed(TEXTS[0], pool="", layers="all")
    assert layers_NLD.shape == (3, *tokens_LD.shape)
    np.testing.assert_allclose(layers_NLD[-1], tokens_LD, rtol=1e-5, atol=1e-6)
    assert loaded.embed(TEXTS, layers="all").shape == (len(TEXTS), 3, tokens_LD.shape[1])


def test_no_texts_give_arrays_of_no_rows(loaded):
    D = len(loaded.embed(TEXTS[0]))
    assert loaded.embed([]).shape == (0, D)
    assert loaded.embed([], pool="") == []
    assert loaded.similarity([], TEXTS).shape == (0, 2)
    assert loaded.similarity(TEXTS, []).shape == (2, 0)


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (
            lambda run: run.embed(3),
            r"embed\(\.\.\.\) takes a text or a list of texts, .* 3 \(int\)",
        ),
        (lambda run: run.embed("a", pool="median"), "^pool=median: it is one of mean, first"),
        (lambda run: run.embed("a", pool=None), r"embed\(pool=\.\.\.\) is to be text"),
        (lambda run: run.similarity("a", [3]), r"similarity\(\.\.\.\) takes .* item 0 is 3"),
        (lambda run: run.similarity("a", "b", pool=""), "by one vector"),
        (lambda run: run.generate([None]), "item 0 is None"),
        (lambda run: run.generate("a", stops=3), r"generate\(stops=\.\.\.\) takes a text or"),
        (lambda run: run.generate("a", tokens="3"), r"generate\(tokens=\.\.\.\) is to be a whole"),
        (lambda run: run.fill(3), r"fill\(\.\.\.\) takes"),
        (lambda run: run.fill("a", top="3"), r"fill\(top=\.\.\.\) is to be a whole"),
        (lambda run: run.score({"a": "b"}), r"score\(\.\.\.\) takes"),
        (lambda run: run.predict("a", task=3), r"predict\(task=\.\.\.\) is to be text"),
    ],
)
def test_what_is_no_text_is_refused_in_a_line(loaded, ask, named):
    with pytest.raises(UserError, match=named):
        ask(loaded)
