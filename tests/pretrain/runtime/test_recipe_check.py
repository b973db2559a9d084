"""A recipe is looked at before any work, key by key."""

import re

import pytest

from pretrain.runtime.errors import UsageError, UserError
from pretrain.runtime.recipe_check import check_key, check_recipe
from tests.pretrain.runtime.test_recipe_ranges import config_of


def test_a_recipe_without_a_section_is_refused_by_what_it_lacks():
    keys = ["corpus", "optim", "optim.b2", "optim.b3", "model"]
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
