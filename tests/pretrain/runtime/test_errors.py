"""A mistake in a recipe is a line; an error inside the work stays what it is."""

import numpy as np
import pytest

from modules import plugins
from pretrain.runtime.errors import UserError, call_section


def build(*, rows: int, name: str = "words"):
    plugins.load("pretrain.data.tokenizers", name, "Tokenizer")
    return np.zeros(3) + np.zeros(rows)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 3, "row": 3}, "corpus: got an unexpected keyword argument 'row'; there are rows"),
        ({}, "corpus: missing a required (keyword-only )?argument: 'rows'"),
        ({"rows": 3, "name": "none"}, "corpus.name='none': there is no"),
    ],
)
def test_a_wrong_key_or_name_is_the_user_s(fields, message):
    with pytest.raises(UserError, match=message):
        call_section("corpus", build, fields)


def test_an_error_inside_the_work_is_not_the_user_s():
    with pytest.raises(ValueError, match="broadcast") as error:
        call_section("corpus", build, {"rows": 2})
    assert not isinstance(error.value, UserError)
