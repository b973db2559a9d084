"""A mistake in a recipe is a line; an error inside the work stays what it is."""

import numpy as np
import pytest
from flax import linen as nn

import modules
from modules import plugins
from pretrain.runtime.errors import UserError
from pretrain.runtime.sections import call_section, name_section


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
