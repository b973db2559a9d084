"""ELMo's releases are read as they are, and written so."""

import copy
import json
import re

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import modules
from configs import elmo as recipe
from pretrain.conversion.name_map import reconcile
from pretrain.conversion.systems import Source, elmo
from pretrain.data.tokenizers import words
from pretrain.inference.trained_run import build_run
from pretrain.runtime.errors import UserError
from tests.support import array_mapping as cases
from tests.support import elmo_weights as golden

KNOWN = [*words.MARKS, *(f"word{i}" for i in range(47))]
OPTIONS = {
    "lstm": dict(cell_clip=3, proj_clip=2.5, dim=24, projection_dim=12, n_layers=2)
    | dict(use_skip_connections=True),
    "char_cnn": dict(activation="relu", embedding={"dim": 4}, filters=[[1, 4], [2, 8]])
    | dict(max_characters_per_token=10, n_characters=261, n_highway=2),
    "n_tokens_vocab": 50,
    "bidirectional": True,
    "dropout": 0.2,
    "unroll_steps": 7,
    "batch_size": 3,
    "sample_softmax": False,
}


@pytest.fixture
def release(tmp_path):
    """A folder without weights, whose options the test changes, "lstm.dim" by that name."""

    def make(kind, changes=None, asked=None):
        options = copy.deepcopy(OPTIONS)
        for name, value in (changes or {}).items():
            *sections, last = name.split(".")
            place = options
            for section in sections:
                place = place[section]
            place[last] = value
        (tmp_path / "options.json").write_text(json.dumps(options))
        (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in KNOWN))
        return Source(tmp_path, kind, {}, asked or {})

    return make


def worded(source):
    """The same without characters."""
    options = json.loads((path := source.find_file("options.json")).read_text())
    del options["char_cnn"]
    path.write_text(json.dumps(options))
    return source


def spelled_or_not(release, case: str, kind: str):
    changes = {
        "one way": {"bidirectional": False},
        "one layer": {"lstm.n_layers": 1},
        "one layer, one way": {"lstm.n_layers": 1, "bidirectional": False},
        "tied words": {"share_embedding_softmax": True},
    }
    if "words" not in case:
        return release(kind, changes.get(case))
    return worded(release(kind, changes.get(case)))


# --- names -----------------------------------------------------------------------------------

BOTH = ["characters", "words", "tied words", "one layer"]
CASES = [("hdf5", case) for case in BOTH] + [
    ("tensorflow", case) for case in (*BOTH, "one way", "one layer, one way")
]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_what_is_written_under_their_names_is_read_back_bit_for_bit(release, kind, case):
    described = elmo.read_release(spelled_or_not(release, case, kind))
    shapes = cases.shapes(described.model, described.head)
    table = cases.assert_round_trip(elmo.build_table, kind, shapes)
    assert kind == "hdf5" or not table.absent


def test_a_softmax_is_left_behind_where_hdf5_is_written(release):
    described = elmo.read_release(release("tensorflow"))
    shapes = cases.shapes(described.model, described.head)
    table = elmo.build_table("hdf5", shapes)
    left = {"head/softmax_VD", "head/bias_V"}
    assert shapes.keys() - table.by_ours().keys() == left == table.absent.keys()
    assert not any("softmax" in name for name in table.by_theirs())


CELL = ("kernel", "bias", "projection/kernel")
SCOPES = {  # where TensorFlow has the variables of the cells
    "characters": "lm/RNN_{z}/rnn/multi_rnn_cell/cell_{n}/lstm_cell/",
    "one layer": "lm/RNN_{z}/rnn/lstm_cell/",
    "one way": "lm/rnn/multi_rnn_cell/cell_{n}/lstm_cell/",
    "one layer, one way": "lm/rnn/lstm_cell/",
}


@pytest.mark.parametrize("case", SCOPES)
def test_cells_are_named_as_tensorflow_s_scopes_nest(release, case):
    shapes = cases.shapes(elmo.read_release(spelled_or_not(release, case, "tensorflow")).model)
    found = elmo.build_table("tensorflow", shapes).specs(shapes, np.float32)
    expected = {
        SCOPES[case].format(n=n, z=z) + name for n in range(2) for z in range(2) for name in CELL
    }
    assert {name for name in found if "lstm_cell" in name} == expected
    kernel = min(name for name in expected if name.endswith("kernel"))
    assert found[kernel].shape == (24, 96)


@pytest.mark.parametrize("name", golden.CASES)
def test_all_of_a_training_checkpoint_is_accounted_for(release, name):
    options, groups = golden.raw(name)
    source = release("tensorflow")
    source.find_file("options.json").write_text(json.dumps(options))
    described = elmo.read_release(source)
    shapes = cases.shapes(described.model, described.head)
    slots = {f"{variable}/Adagrad": x for variable, x in groups["w"].items()}
    counts = {"global_step": np.zeros(()), "train_perplexity": np.zeros(())}
    found = groups["w"] | slots | counts
    settled = reconcile(elmo.build_table("tensorflow", shapes, found), shapes, cases.specs(found))
    assert sum(map(len, settled.ignored.values())) == len(slots) + 2
    assert described.tokenizer.pieces == KNOWN
    assert described.batches == dict(
        name="bidirectional", B=3, L=7, characters=0 if name == "token_skip" else 10
    )


# --- options -----------------------------------------------------------------------------------


def test_the_released_options_mean_the_paper_s_recipe(release):
    original = recipe.get_config("original")
    changes = {
        "lstm.dim": 4096,
        "lstm.projection_dim": 512,
        "lstm.proj_clip": 3,
        "char_cnn.n_characters": 262,
        "char_cnn.embedding.dim": 16,
        "char_cnn.max_characters_per_token": 50,
        "char_cnn.filters": [list(each) for each in original.model.filters],
    }
    model = elmo.read_release(release("hdf5", changes)).model
    other = {name for name, value in model.items() if original.model.get(name) != value}
    assert other == {"V", "dropout"}
    shapes = jax.tree.leaves(cases.shapes(model | {"V": 0}), is_leaf=lambda x: isinstance(x, tuple))
    assert round(sum(map(np.prod, shapes)) / 1e6, 1) == 93.6


SWITCHES = {
    "free cells": (
        {"lstm.cell_clip": None, "lstm.proj_clip": None},
        dict(clip_cell=0.0, clip_projection=0.0),
    ),
    "clips": ({}, {"clip_cell": 3.0, "clip_projection": 2.5}),
    "no skips": ({"lstm.use_skip_connections": False}, {"residual": False}),
    "tanh": ({"char_cnn.activation": "tanh"}, {"activation": "tanh"}),
    "no highways": ({"char_cnn.n_highway": None}, {"highways": 0}),
    "one way": ({"bidirectional": False}, {"Z": 1}),
    "sizes": ({}, dict(V=50, D=12, U=24, N=2, E=4, W=10, filters=((1, 4), (2, 8)))),
    "more": ({}, dict(dropout=0.2, inputs="characters")),
}


@pytest.mark.parametrize("case", SWITCHES)
def test_options_switches_become_ours(release, case):
    changes, expected = SWITCHES[case]
    model = elmo.read_release(release("tensorflow", changes)).model
    assert {name: model[name] for name in expected} == expected


def test_words_are_sampled_as_the_options_say(release):
    changes = {"sample_softmax": True, "n_negative_samples_batch": 10}
    assert elmo.read_release(release("tensorflow", changes)).objective["samples"] == 10
    changes["n_negative_samples_batch"] = 8192  # more than there are
    assert elmo.read_release(release("tensorflow", changes)).objective["samples"] == 0
    assert elmo.read_release(release("tensorflow")).objective["samples"] == 0


def test_inference_s_filling_is_no_character_of_ours(release):
    for kind, count in (("tensorflow", 261), ("hdf5", 262)):
        model = elmo.read_release(release(kind, {"char_cnn.n_characters": count})).model
        assert cases.shapes(model)["backbone/characters/character_E"] == (261, 4)


def test_characters_without_a_softmax_need_no_vocabulary(release):
    source = release("hdf5")
    source.find_file("vocab.txt").unlink()
    described = elmo.read_release(source)
    assert (described.model["V"], described.tokenizer.pieces) == (0, list(words.MARKS))
    assert described.tokenizer.words(["Some text ."]) == [["Some", "text", "."]]
    lower = elmo.read_release(release("hdf5", asked={"lower": True})).tokenizer
    assert lower.words(["Some text ."]) == [["some", "text", "."]]


def test_words_have_a_vocabulary_of_their_own_or_as_named(release, tmp_path):
    source = worded(release("hdf5"))
    assert elmo.read_release(source).tokenizer.pieces == KNOWN
    source.find_file("vocab.txt").rename(tmp_path / "other.txt")
    with pytest.raises(UserError, match=r"has no vocab\*\.txt"):
        elmo.read_release(source)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (tmp_path / "other.txt").rename(elsewhere / "vocab-1.txt")
    source = Source(tmp_path, "hdf5", {}, {"vocabulary": str(elsewhere)})
    assert elmo.read_release(source).tokenizer.pieces == KNOWN


REFUSED = [
    ({"char_cnn.activation": "gelu"}, "char_cnn.activation is 'gelu'"),
    ({"char_cnn.n_characters": 300}, "char_cnn.n_characters is 300"),
    ({"char_cnn.filters": [[2, 4], [1, 8]]}, "from narrow to wide"),
    ({"char_cnn.filters": [[1, 4], [1, 8]]}, "from narrow to wide"),
    ({"char_cnn.filters": 3}, "char_cnn.filters is 3"),
    ({"lstm.projection_dim": 24}, "lstm.projection_dim=24 is not below lstm.dim=24"),
    ({"lstm.cell_clip": 0}, "lstm.cell_clip is 0, and should be a number above 0"),
    ({"lstm.dim": "24"}, "lstm.dim is '24'"),
    ({"share_embedding_softmax": True}, "share_embedding_softmax is True"),
    ({"n_tokens_vocab": 51}, "has 50 pieces, but the weights have 51 rows"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSED)
def test_what_cannot_be_computed_is_refused_by_name(release, changes, reason):
    with pytest.raises(UserError, match=re.escape(reason)):
        elmo.read_release(release("tensorflow", changes))


def test_an_hdf5_file_read_one_way_is_refused(release):
    with pytest.raises(UserError, match="bidirectional is False, and here can only be True"):
        elmo.read_release(release("hdf5", {"bidirectional": False}))


# --- out -------------------------------------------------------------------------------------


def written(model, folder, known=KNOWN, head=None):
    """The folder, with what lies beside the weights of a run."""
    folder.mkdir()
    own = head or dict(tied=False, bias=True)
    config = ConfigDict(dict(objective=dict(name="bilm"), head=own))
    tokens = words.Tokenizer(list(known), "blank")
    elmo.write_config_and_tokenizer(
        build_run(folder, config, tokens, modules.build(**model)), folder, "hdf5", "float32"
    )
    return folder


@pytest.mark.parametrize("case", ["characters", "words", "tied words"])
def test_what_is_written_beside_the_weights_describes_the_run(release, tmp_path, case):
    described = elmo.read_release(spelled_or_not(release, case, "tensorflow"))
    model, folder = described.model, tmp_path / "out"
    again = elmo.read_release(Source(written(model, folder, head=described.head), "hdf5", {}))
    assert again.head == described.head
    spelled = case == "characters"
    assert again.model == model | ({"V": 0} if spelled else {})
    assert again.tokenizer.pieces == (list(words.MARKS) if spelled else KNOWN)


def test_options_are_those_that_inference_takes(release, tmp_path):
    model = elmo.read_release(release("hdf5", {"lstm.cell_clip": None})).model
    folder = written(model, tmp_path / "out", [*KNOWN, "beyond"])
    options = json.loads((folder / "options.json").read_text())
    assert options["char_cnn"] == OPTIONS["char_cnn"] | {"n_characters": 262}
    assert options["lstm"] == OPTIONS["lstm"] | {"cell_clip": None}
    assert (folder / "vocab.txt").read_text().splitlines() == [*KNOWN, "beyond"]


def test_a_vocabulary_ends_where_the_model_s_does(release, tmp_path):
    model = elmo.read_release(worded(release("hdf5"))).model
    folder = written(model, tmp_path / "out", [*KNOWN, "beyond"])
    assert (folder / "vocab.txt").read_text().splitlines() == KNOWN


UNWRITABLE = [
    (dict(Z=1), "model.Z=1: theirs can only be 2"),
    (dict(U=12), "model.D=12 is not below model.U=12"),
    (dict(filters=((2, 8), (1, 4))), "model.filters is ((2, 8), (1, 4))"),
]


@pytest.mark.parametrize(("fields", "reason"), UNWRITABLE)
def test_a_run_that_theirs_could_not_compute_is_not_written(release, tmp_path, fields, reason):
    model = elmo.read_release(release("hdf5")).model | fields
    with pytest.raises(UserError, match=re.escape(reason)):
        written(model, tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
