"""A mistake in a recipe is a line; an error inside the work stays what it is."""

import subprocess
import sys

import numpy as np
import pytest
from flax import linen as nn

import modules
from modules import plugins
from pretrain.data.batches import configure
from pretrain.runtime import recipe_files
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section, name_section


def load_recipe(name: str):
    return recipe_files.load(str(recipe_files.ROOT / "configs" / f"{name}.py"))


def build_objective(name: str, **fields):
    return plugins.construct(
        plugins.load("pretrain.objectives", name, "Objective").Objective, None, None, **fields
    )


class Chooser(nn.Module):
    """A module with a field of its own checks."""

    kind: str
    D: int = 8

    def __post_init__(self):
        if self.kind not in ("mean", "max"):
            raise ValueError(f"kind={self.kind!r} is none of mean, max")
        super().__post_init__()


def build(*, rows: int, name: str = "words", kind: str = "mean", given: int = 0, **more):
    plugins.load("pretrain.data.tokenizers", name, "Tokenizer")
    plugins.construct(Chooser, kind=kind, **more)
    return np.zeros(3) + np.zeros(rows)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 3, "row": 3}, r"corpus: got an unexpected keyword argument 'row'; .* kind, D"),
        ({}, "corpus: missing a required (keyword-only )?argument: 'rows'"),
        ({"rows": 3, "name": "none"}, "corpus.name='none': there is no"),
        ({"rows": 3, "kind": "sum"}, "corpus.kind='sum' is none of mean, max"),
        ({"rows": 3, "given": 3}, "corpus: 'given' is not set in this section"),
    ],
)
def test_a_wrong_key_name_or_value_is_the_user_s(fields, message):
    with pytest.raises(UserError, match=f"^{message}"):
        call_section("corpus", build, fields, given=1)


def test_an_error_inside_the_work_is_not_the_user_s():
    with pytest.raises(ValueError, match="broadcast"):
        call_section("corpus", build, {"rows": 2})


@pytest.mark.parametrize("error", [ValueError("x=1"), TypeError("keyword argument"), KeyError()])
def test_a_section_changes_no_other_error(error):
    with pytest.raises(type(error)) as raised, name_section("model"):
        raise error
    assert raised.value is error


def test_a_section_without_what_its_part_needs_is_named():
    with pytest.raises(UserError, match=r"model: .*'V'"):
        call_section("model", modules.build, {"name": "transformer", "D": 8})


def test_a_part_that_is_changed_without_its_fields_leads_to_recipes_of_it():
    fields = dict(load_recipe("bert").batches, name="bptt")
    with pytest.raises(UserError) as error:
        call_section("batches", configure, fields)
    said = str(error.value)
    assert said.startswith(
        "batches: next_sentence, pack, short_seq_prob of this recipe's 'pairs' do not"
    )
    assert "do not fit 'bptt', which has B, L, seed, bptt, std, " in said
    assert "begin with a recipe of 'bptt', as --config=awd_lstm or ulmfit, or write one, as" in said
    for name in ("awd_lstm", "ulmfit"):
        assert load_recipe(name).batches.name == "bptt"


@pytest.mark.parametrize(
    ("section", "function", "fields", "owner"),
    [
        ("model", modules.build, dict(name="elmo", D=8, F=8, pooler=True), "transformer"),
        ("objective", build_objective, dict(name="clm", geometric=0.2, mask_prob=0.1), "mlm"),
    ],
)
def test_fields_of_another_part_are_named_with_it(section, function, fields, owner):
    with pytest.raises(
        UserError, match=f"of this recipe's '{owner}' do not fit '{fields['name']}'"
    ):
        call_section(section, function, fields)


def test_fields_of_a_part_of_ones_own_lead_to_a_recipe_of_ones_own():
    fields = dict(name="tests.support.own_parts.prefix_lm", mask_prob=0.1)
    with pytest.raises(UserError, match=r"which has .*; write a recipe, as docs/tutorials/own_obj"):
        call_section("objective", build_objective, fields)


def test_a_field_of_no_part_is_no_change_of_parts():
    with pytest.raises(
        UserError, match=r"^batches: got an unexpected keyword argument 'zzz'; there"
    ):
        call_section("batches", configure, dict(name="windows", B=1, L=2, zzz=1))


def test_sections_are_called_where_ml_collections_is_not_installed():
    # Peers of the benchmarks make batches in a Python that has torch, and not all of ours.
    absent = "import sys; sys.modules['ml_collections'] = None"
    command = [sys.executable, "-c", f"{absent}; import pretrain.runtime.sections"]
    assert subprocess.run(command, check=False).returncode == 0
