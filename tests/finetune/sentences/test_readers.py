"""Sentences become vectors with all of their tokens, or without some."""

import numpy as np

from finetune.sentences.readers import RunReader, WordReader
from pretrain.inference.embedder import Embedder
from pretrain.inference.layer_selection import parse_pool
from tests.support.tiny_models import layout
from tests.support.xlnet_inputs import off

pytest_plugins = ["tests.support.tiny_models"]


def test_a_run_averages_what_is_not_left_out(run, lines):
    run = run("mlm")
    choice, kind = parse_pool("last_two", count=3)
    whole = RunReader("a", Embedder(run, layout(), choice, pool=kind, tokens=64))
    parts = RunReader("b", Embedder(run, layout(), choice, marks=True, tokens=64))
    assert not whole.averages
    assert parts.averages
    texts = [lines[1], lines[8], ""]
    tokens = parts.list_tokens(texts)
    marks = [run.tokenizer.pieces[run.tokenizer.special[name]] for name in ("cls", "sep")]
    assert [marks[0], *marks[1:]] in tokens  # of the empty text
    left_out = [frozenset(), frozenset(marks)]
    found_KND = parts.read(texts, left_out)
    assert off(found_KND[:1], whole.read(texts, left_out[:1])) < 1e-5
    assert [x.any() for x in found_KND[1]] == [True, True, False]


def test_words_without_vectors_do_not_count(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("cat 1 2\nthe 3 0\n, 0 1\n")
    reader = WordReader(path)
    assert reader.list_tokens(["The cat, unheard"]) == [["the", "cat", ",", "unheard"]]
    found_KND = reader.read(["The cat, unheard", "Unheard"], [frozenset(), frozenset(["the"])])
    np.testing.assert_allclose(found_KND, [[[4 / 3, 1], [0, 0]], [[0.5, 1.5], [0, 0]]], rtol=1e-6)
