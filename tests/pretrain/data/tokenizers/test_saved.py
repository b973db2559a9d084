"""The tokenizer of a run or a corpus is taken from its folder, with what else its text needs."""

import pytest

from pretrain.data import prepare
from pretrain.data.tokenizers import registry, saved_files
from pretrain.runtime.errors import UserError
from tests.support.tokenizer_data import learn


def test_settings_know_a_saved_tokenizer_by_its_content(learned, tmp_path):
    for name, kind in (("a", "bpe"), ("b", "bpe"), ("c", "byte_bpe")):
        learned[kind].save(tmp_path / name)
    a, b, c = (registry.settings("saved", folder=str(tmp_path / name)) for name in "abc")
    assert a == b != c


@pytest.mark.parametrize("content", [None, "{", "[1]", '{"version": "1.0"}', '{"name": "morse"}'])
def test_a_folder_that_holds_no_tokenizer_is_refused(content, tmp_path):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(UserError, match=r"no tokenizer was saved there|no .* with a Tokenizer"):
        registry.settings("saved", folder=str(tmp_path))


def test_words_of_a_text_are_added_once(learned, tmp_path):
    learned["wordpiece"].save(tmp_path / "a")
    fields = {"name": "saved", "folder": str(tmp_path / "a"), "extend": 1}
    fields["digest"] = registry.settings(**fields)["digest"]
    grown = registry.learn(iter(["Zyxwab Zyxwab"]), **fields)
    assert grown.pieces[-1] == "zyxwab"
    grown.save(tmp_path / "b")
    fields |= {"folder": str(tmp_path / "b")}
    assert registry.learn(iter(["qwjpk"]), **fields) == grown
    assert registry.settings(**fields) == registry.settings(**fields | {"folder": f"{tmp_path}/a"})
    with pytest.raises(UserError, match="extend=-1: words can only be added"):
        registry.settings(**fields | {"extend": -1})
    with pytest.raises(UserError, match="extend=1 adds words to the vocabulary of the run"):
        registry.settings(name="wordpiece", extend=1)
    assert registry.settings(name="wordpiece", extend=0) == registry.settings(name="wordpiece")


def test_whole_words_take_new_words_and_pieces_stay(learned, tmp_path):
    learn("words", ["one two two"]).save(tmp_path / "words")
    learned["wordpiece"].save(tmp_path / "wordpiece")
    (tmp_path / "text.txt").write_text("One three two three three.\n")
    read = dict(source=f"text:{tmp_path}/text.txt", cache=str(tmp_path / "data"), held_out=0)
    saved = {"name": "saved", "folder": str(tmp_path / "words")}
    corpus = prepare.prepare(tokens=saved, **read)
    assert corpus.tokenizer.pieces[3:] == ["two", "one", "three", ".", "One"]
    assert corpus.tokens.tolist() == [7, 5, 3, 5, 5, 6, 1]
    corpus = prepare.prepare(tokens=saved | {"folder": str(tmp_path / "wordpiece")}, **read)
    assert corpus.manifest["tokenizer"] == saved_files.hash_saved(tmp_path / "wordpiece")
