"""A key's meaning is read from the docstring of what takes it; all have one: test_recipe_ranges."""

import pytest

from pretrain.runtime import recipe_meanings
from pretrain.runtime.errors import UsageError
from tests.pretrain.runtime.test_recipe_ranges import config_of


@pytest.mark.parametrize(
    ("recipe", "key", "meaning"),
    [
        ("configs.bert", "model.F", "feed-forward"),  # one of several in one entry
        ("configs.elmo", "model.filters", "(characters wide, number of filters)"),  # of a part
        ("configs.bert", "optim.b2", "what is left of the second"),  # by reference
        ("configs.bert", "evals.held_out_32.L", "tokens of a row."),  # of the section's base
        ("configs.bert", "first_phase.share", "of all steps"),
        ("configs.awd_lstm", "hooks.nt_asgd.n", "the latest evaluations"),  # of a dotted name
        ("configs.finetune.conll2003", "task.encoder.U", "units"),  # unset: of another file
        ("configs.finetune.sst2", "data.encoding", "of the file's text"),
        ("configs.bert", "objective.name", "bilm, clm, mlm, plm; or a module of your own"),
    ],
)
def test_a_meaning_is_that_of_the_part_that_is_named(recipe, key, meaning):
    assert meaning in recipe_meanings.find_meaning(config_of(recipe), key)


def test_a_section_is_explained_alone_or_refused_with_those_there_are():
    config = config_of("configs.bert")
    (line, *_) = recipe_meanings.explain(config, "mesh.data")
    assert line.startswith("mesh.data=-1  devices that rows are divided over")
    assert len(list(recipe_meanings.explain(config))) > 70
    with pytest.raises(UsageError, match="--explain=nope: the recipe has batches, corpus"):
        list(recipe_meanings.explain(config, "nope"))


@pytest.mark.parametrize(("named", "meant"), [("optm", "optim"), ("optim.stesp", "optim.steps")])
def test_a_section_that_is_not_there_is_named_with_the_nearest(named, meant):
    with pytest.raises(UsageError, match=f"did you mean {meant}\\?"):
        list(recipe_meanings.explain(config_of("configs.bert"), named))
