"""A recipe is looked at before any work, key by key."""

import re

import pytest

from pretrain.runtime import recipe_files
from pretrain.runtime.errors import UsageError, UserError
from pretrain.runtime.recipe_check import check_key, check_recipe
from tests.pretrain.runtime.test_recipe_ranges import config_of


def test_a_recipe_without_a_section_is_refused_by_what_it_lacks():
    keys = ["epochs", "corpus", "optim", "optim.b2", "optim.b3", "model"]
    with pytest.raises(UserError, match=r"stsb\.py has no corpus, optim\.b3:"):
        check_recipe(config_of("configs.finetune.stsb"), keys, "stsb.py")


def test_a_recipe_is_looked_at_number_by_number():
    config = config_of("configs.gpt")
    config.optim.clip = float("nan")
    with pytest.raises(UserError, match=r"optim\.clip=nan"):
        check_recipe(config, ["optim"], "")


@pytest.mark.parametrize("name", ["../../x", "", "__init__", "a."])
@pytest.mark.parametrize("key", ["corpus.tokens.name", "model.name"])
def test_the_name_of_a_part_is_no_path(key, name):
    config = config_of("configs.gpt")
    config.update_from_flattened_dict({key: name})
    with pytest.raises(UserError, match=re.escape(f"{key}={name!r}")):
        check_recipe(config, [], "")


def test_a_key_of_another_section_is_found_there():
    with pytest.raises(UsageError, match=r"did you mean optim\.eps\?"):
        check_key(config_of("configs.bert"), "train.eps")


@pytest.mark.parametrize(
    ("recipe", "keys", "command"),
    [
        ("configs.finetune.table", ["model.name", "objective.name"], "finetune.main"),
        ("configs.bert", ["epochs"], "pretrain.main"),
        ("configs.evaluate.text", ["seed", "objective.name"], "pretrain.evaluate"),
        ("configs.gradients", ["objective.name"], "pretrain.gradients"),
    ],
)
def test_a_recipe_of_another_command_leads_to_that(recipe, keys, command):
    named = str(recipe_files.ROOT / recipe.replace(".", "/")) + ".py"
    with pytest.raises(UsageError) as error:
        check_recipe(config_of(recipe), keys, f"{named}:mini")
    shown = recipe.replace(".", "/") + ".py"
    assert str(error.value) == f"{shown} is a recipe of python -m {command}"


def test_recipes_of_the_same_command_are_named_for_a_key_before_others():
    known = "this key: finetune/recurrent, finetune/semeval2010:att_blstm, "
    with pytest.raises(UsageError, match=known):
        check_key(config_of("configs.finetune.sst2"), "optim.l2")
