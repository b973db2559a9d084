"""Occurrences of a word, and those that are like them."""

import json

import h5py
import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver

from pretrain import embed, neighbours
from pretrain.distributed.sharding import make_mesh
from pretrain.inference.vector_tables import read_table
from pretrain.runtime.errors import UsageError, UserError
from tests.support import commands

pytest_plugins = ["tests.support.tiny_models"]

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


def test_the_nearest_sentences_come_first_but_not_the_sentence_itself(monkeypatch):
    monkeypatch.setattr(neighbours, "ROWS", 2)
    vectors_ND = np.array([[3, 0], [0, 2], [1, 1], [5, 0.1], [0, 0]], np.float32)
    found = neighbours.rank_sentences(vectors_ND, vectors_ND[0], nearest=2, itself=0)
    assert [i for _, i in found] == [3, 2]
    assert found[1][0] == pytest.approx(0.5**0.5)
    assert [i for _, i in neighbours.rank_sentences(vectors_ND, vectors_ND[0], 9)] == [
        0,
        3,
        2,
        1,
        4,
    ]


@pytest.fixture
def sentences(run, lines, tmp_path, monkeypatch):
    """Vectors of lines in a table that says how they were made."""
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    one_mesh = make_mesh(devices=jax.devices()[:1])
    for command in (embed, neighbours):
        monkeypatch.setattr(command, "make_mesh", lambda: one_mesh)
    embed.embed(run("mlm"), tmp_path / "in.txt", tmp_path / "in.parquet", pool="last_two")
    return tmp_path / "in.parquet"


def show(*words, **values):
    flags.FLAGS.mark_as_parsed()
    with flagsaver.flagsaver(**{"workdir": None, "line": 0, "text": [], "word": ""} | values):
        neighbours.main([str(word) for word in words])


def test_a_query_is_read_as_the_sentences_were(run, lines, sentences, capsys):
    show(sentences, text=[lines[3]], workdir=str(run("mlm").workdir))
    assert capsys.readouterr().out.startswith(f"{lines[3]}\n    1.000  4: {lines[3]}\n")
    show(sentences, line=9)
    assert capsys.readouterr().out.startswith(f"9: {lines[8]}\n    1.000  2: {lines[1]}\n")
    np.save(plain := sentences.with_suffix(".npy"), read_table(sentences).vectors_ND)
    show(plain, sentences.with_suffix(".txt"), line=9)
    assert capsys.readouterr().out.startswith(f"9: {lines[8]}\n    1.000  2: {lines[1]}\n")
    with pytest.raises(UserError, match="does not say how it was made"):
        show(plain, text=["a"])
    with pytest.raises(UserError, match="was not made by the weights"):
        show(sentences, text=["a"], workdir=str(run("clm").workdir))
    with pytest.raises(UserError, match=r"--line=10: .* has 9 sentences"):
        show(sentences, line=10)
    with pytest.raises(UsageError, match="a --word, --line or --text"):
        show(sentences, line=1, text=["a"])


@pytest.mark.parametrize(
    ("shape", "made_from"),
    [((3,), {}), ((2, 3), {}), ((5, 3), {"pool": "mean"}), ((1, 5, 3), {"pool": "first"})],
)
def test_a_word_is_not_looked_for_where_a_sentence_has_one_vector(tmp_path, shape, made_from):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["0"] = np.ones(shape, np.float32)
        file["0"].attrs["tokens"] = json.dumps(SENTENCES[0].split())
        file.attrs["made_from"] = json.dumps(made_from)
    with pytest.raises(UserError, match="a vector for each sentence: ask by --line or --text"):
        neighbours.read_places(tmp_path / "a.h5", "bank")


def test_what_is_not_there_is_named(embedded, tmp_path):
    with pytest.raises(UserError, match="token 'money'"):
        neighbours.read_places(embedded, "money")
    path = tmp_path / "some.h5"
    with pytest.raises(UserError, match=rf"^there is no {path}$"):
        neighbours.read_places(path, "bank")
    path.write_text("a line")
    with pytest.raises(UserError, match=r"pretrain.embed did not write this"):
        neighbours.read_places(path, "bank")
