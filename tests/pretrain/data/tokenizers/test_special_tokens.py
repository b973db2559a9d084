"""What a vocabulary lacks is named beside what it has."""

import pytest

from pretrain.data.tokenizers.special_tokens import require_special
from pretrain.runtime.errors import UserError


def test_missing_tokens_are_named_with_who_needs_them():
    special = {"eod": 3, "cls": 4}
    require_special(special, ("cls",), "'lanes'")
    with pytest.raises(
        UserError, match=r"'pairs' needs <sep> and <pad>, .* are <eod>, <cls>: choose"
    ):
        require_special(special, ("cls", "sep", "pad"), "'pairs'")
    with pytest.raises(UserError, match=r"this objective needs <mask>, .* are none: choose"):
        require_special({}, ("mask",), "this objective")
