"""Tokenizers that are learned once; nobody may change them."""

import pytest

from pretrain.data.tokenizers import Tokenizer
from tests.support.tokenizer_data import KINDS, learn


@pytest.fixture(scope="session")
def learned() -> dict[str, Tokenizer]:
    """One of each kind."""
    return {kind: learn(kind) for kind in KINDS}
