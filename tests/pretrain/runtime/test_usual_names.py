"""Other libraries' names lead to keys that recipes have."""

from pretrain.runtime import recipe_files, usual_names
from tests.pretrain.runtime.test_recipe_ranges import RECIPES, config_of


def test_every_usual_name_leads_to_a_key_of_some_recipe():
    keys = {key for recipe in RECIPES for key, _ in recipe_files.iter_leaves(config_of(recipe))}
    assert usual_names.USUAL_NAMES.keys() <= keys


def test_of_several_keys_those_of_the_recipe_are_found():
    assert usual_names.find_keys("Train_File", {"data.train"}.__contains__) == ["data.train"]
    assert usual_names.find_keys("nothing", {"data.train"}.__contains__) == []


def test_a_name_is_translated_where_one_key_of_the_recipe_means_it():
    keys = {"optim.lr", "train.parts"}
    assert usual_names.translate("train.grad_accum", keys.__contains__) == "train.parts"
    assert usual_names.translate("learning_rate", keys.__contains__) == "optim.lr"
    # A recipe of this name's own, one that lacks the key, and a name of another meaning.
    assert usual_names.translate("ema", keys.__contains__) == ""
    own = keys | {"learning_rate"}
    assert usual_names.translate("learning_rate", own.__contains__) == ""
    assert usual_names.translate("warmup_ratio", (keys | {"optim.warmup"}).__contains__) == ""


def test_a_synonym_is_one_in_any_section():
    assert usual_names.is_synonym("train.grad_accum")
    assert not usual_names.is_synonym("optim.lr")
    assert not usual_names.is_synonym("warmup_ratio")


def test_a_name_means_the_same_as_a_key_or_is_related_to_it_and_not_both():
    for key, names in usual_names.SYNONYMS.items():
        assert not {*names.split()} & {*usual_names.RELATED.get(key, "").split()}
