"""Pieces are read from any of the files of a folder."""

import pytest

from pretrain.conversion.systems import bert
from pretrain.data.tokenizers import registry
from pretrain.runtime.errors import UserError
from tests.support import bert_release as cases
from tests.support.bert_release import WHOLE


def test_a_vocabulary_is_found_in_the_newer_file_too(bare):
    ids = {piece: i for i, piece in enumerate(cases.PIECES)}
    content = {"model": {"type": "WordPiece", "vocab": ids}}
    source = bare(files=[("tokenizer.json", content)])
    (source.folder / "vocab.txt").unlink()
    assert bert.read_release(source).tokenizer.pieces == cases.PIECES


ADDED = [
    dict(id=4, content="[MASK]", special=True),
    dict(id=36, content="cab19", normalized=True),
    dict(id=37, content="[NEW]", special=True),
    dict(id=38, content="bb", single_word=True),
]

PLACES = {
    "tokenizer.json": [("tokenizer.json", WHOLE | {"added_tokens": ADDED})],
    "tokenizer_config.json": [
        ("tokenizer_config.json", {"added_tokens_decoder": {str(x["id"]): x for x in ADDED}})
    ],
}


@pytest.mark.parametrize("place", PLACES)
def test_added_pieces_are_found_in_text_unless_they_are_special(bare, place, tmp_path):
    tokens = bert.read_release(bare(files=PLACES[place], vocab_size=39)).tokenizer
    assert tokens.pieces[36:] == ["cab19", "[NEW]", "bb"]
    tokens.save(tmp_path / "saved")
    for each in (tokens, registry.load(tmp_path / "saved")):
        assert (each.pieces, each.special) == (tokens.pieces, tokens.special)
        [ids] = each.encode(["a CAB19 bb bba [NEW]"])
        found = [tokens.pieces[i] for i in ids]
        assert found[:6] == ["a", "cab19", "bb", "b", "##b", "##a"]
        assert not {"[NEW]", "[MASK]"} & set(found)


def test_older_files_of_added_pieces_are_read_and_gaps_refused(bare):
    files = [("added_tokens.json", {"cab19": 36})]
    tokens = bert.read_release(bare(files=files, vocab_size=37)).tokenizer
    assert tokens.encode(["cab19"])[0].tolist() == [36]
    with pytest.raises(UserError, match=r"'cab19' is added as piece 38, and there are 36 pieces"):
        bert.read_release(bare(files=[("added_tokens.json", {"cab19": 38})]))
