"""Other libraries' names lead to keys that recipes have."""

from pretrain.runtime import recipe_files, usual_names
from tests.pretrain.runtime.test_recipe_ranges import RECIPES, config_of


def test_every_usual_name_leads_to_a_key_of_some_recipe():
    keys = {key for recipe in RECIPES for key, _ in recipe_files.iter_leaves(config_of(recipe))}
    assert usual_names.USUAL_NAMES.keys() <= keys


def test_of_several_keys_those_of_the_recipe_are_found():
    assert usual_names.find_keys("Train_File", {"data.train"}.__contains__) == ["data.train"]
    assert usual_names.find_keys("nothing", {"data.train"}.__contains__) == []
