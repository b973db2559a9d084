"""Recipes are listed with the parameters that their papers and the README state."""

import pytest

from pretrain.aot import recipe_list
from pretrain.runtime.errors import UsageError


def test_presets_are_listed_with_their_parameters():
    title, *rows = recipe_list.list_rows(["xlnet"])
    assert title.startswith("configs/xlnet.py  Pretrains XLNet")
    counts = {"xlnet:mini": "1,117,264", "xlnet:base": "116,750,336", "xlnet:large": "360,300,800"}
    assert dict(row.split() for row in rows) == counts


def test_a_recipe_on_another_runs_model_is_listed_without():
    assert [row.strip() for row in recipe_list.list_rows(["sst2"])][1:] == [
        "sst2:tuned",
        "sst2:scratch",
    ]


def test_an_unknown_recipe_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="'brt'; there are awd_lstm, bert"):
        list(recipe_list.list_rows(["brt"]))


def test_a_command_s_recipes_come_first():
    rows = recipe_list.list_rows(first="finetune")
    assert next(rows).startswith("configs/finetune/")
    assert next(recipe_list.list_rows()).startswith("configs/awd_lstm.py")
