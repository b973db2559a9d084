"""A recipe of one task or of several is read as what it says, or is refused."""

import pytest
from ml_collections import ConfigDict

from finetune.several import parts
from pretrain.runtime.errors import UserError
from tests.support import tiny_jobs
from tests.support.tiny_jobs import ignore, several, table

__all__ = ["table"]


def test_a_task_s_batches_differ_from_the_recipe_s_in_what_they_say():
    sections = parts.list_sections(several("rows.tsv", ""))
    assert list(sections) == ["number", "yes"]  # by name, whatever the order in the recipe
    assert [x.batches["L"] for x in sections.values()] == [24, 16]
    assert [x.weight for x in sections.values()] == [1.0, 2.0]
    assert list(parts.list_sections(tiny_jobs.recipe("rows.tsv"))) == [""]


WRONG = {
    "has data and tasks": {"data": dict(train="x")},
    "tasks.yes: .*'colour'": {"tasks.yes.colour": 1},
    "mixture.only='no' is none of number, yes": {"mixture.only": "no"},
    "batches.B is the same for all tasks": {"tasks.yes.batches.B": 4},
    "'a-b' is no name": {"tasks.a-b": dict(task=dict(name="tag"), data={})},
    "has no data": {"tasks": {}},
}


@pytest.mark.parametrize("reason", WRONG)
def test_a_recipe_that_cannot_be_is_refused(reason):
    config = several("rows.tsv", "").to_dict()
    for name, x in WRONG[reason].items():
        *above, last = name.split(".")
        section = config
        for key in above:
            section = section[key]
        section[last] = x
    with pytest.raises(UserError, match=reason):
        parts.list_sections(ConfigDict(config))


def test_a_subset_is_the_same_in_order_for_every_seed(table):
    recipes = [tiny_jobs.recipe(table, seed=seed) for seed in (0, 1)]
    one, other = (parts.read_examples(recipe.data, ignore, 9)["train"] for recipe in recipes)
    whole = parts.read_examples(recipes[0].data, ignore)["train"]
    assert one == other == [x for x in whole if x in one]
    assert len(one) == 9
    assert one != whole[:9]


@pytest.mark.parametrize(
    ("train", "task", "key"),
    [
        ("no.tsv", "", "data.train"),
        ({"path": "no.tsv"}, "yes", "tasks.yes.data.train.path"),
        ("no.parquet", "yes", "tasks.yes.data.train"),
        ("", "", "data.train"),
    ],
)
def test_a_missing_file_is_refused_with_its_key(train, task, key):
    data = ConfigDict(dict(format="table", train=train))
    with pytest.raises(UserError, match=rf"--config\.{key}=\.\.\.$"):
        parts.read_examples(data, ignore, task=task)
