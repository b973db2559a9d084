"""The tokenizer of a run or a corpus is taken from its folder."""

import pytest

from pretrain.data import tokenizers
from pretrain.runtime.errors import UserError
from tests.support.tokenizer_data import V, learn

KINDS = sorted(V)


@pytest.fixture(scope="module")
def learned():
    return {kind: learn(kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_one_that_was_saved(learned, kind, tmp_path):
    learned[kind].save(tmp_path / "a")
    again = tokenizers.learn(iter(()), name="saved", folder=str(tmp_path / "a"))
    assert again == learned[kind]
    again.save(tmp_path / "b")
    assert tokenizers.digest(tmp_path / "a") == tokenizers.digest(tmp_path / "b")


def test_settings_know_a_saved_tokenizer_by_its_content(learned, tmp_path):
    for name, kind in (("a", "bpe"), ("b", "bpe"), ("c", "byte_bpe")):
        learned[kind].save(tmp_path / name)
    a, b, c = (tokenizers.settings("saved", folder=str(tmp_path / name)) for name in "abc")
    assert a == b != c


@pytest.mark.parametrize("content", [None, "{", "[1]", '{"version": "1.0"}', '{"name": "morse"}'])
def test_a_folder_that_holds_no_tokenizer_is_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=r"no tokenizer was saved there|no .* with a Tokenizer"):
        tokenizers.settings("saved", folder=str(tmp_path))
