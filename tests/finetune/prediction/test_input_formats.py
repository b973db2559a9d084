"""The input is of the recipe's format, with its fields, unless the flags say otherwise."""

import pytest
from ml_collections import ConfigDict

from configs.finetune import common
from finetune.prediction.input_formats import list_columns, resolve_format
from pretrain.runtime.errors import UserError


def test_the_input_is_read_as_the_recipe_s_files_are_unless_it_is_said_otherwise(tmp_path):
    config = common.base()
    config.data = dict(
        format="glue",
        task="rte",
        folds=3,
        dev_share=0.1,  # of the recipe's own files, and not of the input
        train=dict(path="g", split="train"),
        test=dict(path="g", split="test"),
        dev="",
    )
    shared = {"task": "rte"}
    assert resolve_format(config.data, "", "", "{}") == ("glue", shared)
    assert resolve_format(config.data, "", "test", "{}") == (
        "glue",
        shared | {"split": "test"},
    )
    given = resolve_format(config.data, "glue", "test", '{"split": "dev"}')
    assert given == ("glue", shared | {"split": "dev"})
    assert resolve_format(config.data, "table", "", '{"label": ""}') == (
        "table",
        {"label": "", "needs_label": False},
    )
    with pytest.raises(UserError, match="--split=dev: the recipe has train, test"):
        resolve_format(config.data, "", "dev", "{}")
    for wrong in ("{", "[1]"):
        with pytest.raises(UserError, match="--fields="):
            resolve_format(config.data, "", "", wrong)


def test_columns_are_those_of_a_tables_texts():
    table = dict(format="table", train="a.csv", label="stars")
    assert list_columns(ConfigDict(table | dict(texts=("head", "body")))) == ("head", "body")
    assert list_columns(ConfigDict(table | dict(texts="body"))) == ("body",)
    assert list_columns(ConfigDict(table | dict(texts=(0, 1)))) == ("0", "1")
    assert list_columns(ConfigDict(table | dict(texts=(2,), kind="lines"))) == ()
    assert list_columns(ConfigDict(dict(format="squad", train="a.json"))) == ()
