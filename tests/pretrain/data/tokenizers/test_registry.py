"""A tokenizer is found by its name, and its fields are checked."""

import pytest

from pretrain.data.tokenizers import registry
from pretrain.runtime.errors import UserError


def test_unknown_kinds_and_misspelt_fields_are_named():
    with pytest.raises(UserError, match="'morse'"):
        registry.settings(name="morse")
    with pytest.raises(UserError, match="argument 'vocabulary_size'; there are V, model"):
        registry.settings(name="sentencepiece", vocabulary_size=9)
