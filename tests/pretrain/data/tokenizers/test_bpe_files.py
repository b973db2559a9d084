"""The two files of a BPE are read, or named where they are none."""

import json
import re

import pytest

from pretrain.data.tokenizers import byte_bpe
from pretrain.runtime.errors import UserError
from tests.support.tokenizer_data import learn


def test_files_that_are_no_vocabulary_are_named(tmp_path):
    vocabulary, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    learn("byte_bpe").save(tmp_path)
    ids = json.loads(vocabulary.read_text())
    for content in ("{", "[]", '{"a": 1}', '{"a": 0}'):
        vocabulary.write_text(content)
        with pytest.raises(UserError, match=r"vocab\.json: "):
            learn("byte_bpe", model=str(tmp_path))
    vocabulary.write_text(json.dumps(ids))
    merges.write_text("#version: 0.2\na qqqq\n")
    with pytest.raises(UserError, match=r"merges\.txt: 'a qqqq'"):
        learn("byte_bpe", model=str(tmp_path))


def test_lines_of_merges_may_begin_with_a_hash(tmp_path):
    vocabulary, merges = tmp_path / "vocab.json", tmp_path / "merges.txt"
    ids = {piece: i for i, piece in enumerate([*byte_bpe.BYTES, "##", byte_bpe.EOD])}
    vocabulary.write_text(json.dumps(ids))
    for header in ("#version: 0.2\n", ""):
        merges.write_text(f"{header}# #\n")
        assert byte_bpe.Tokenizer.read(vocabulary, merges).merges == [("#", "#")]


def test_a_tokenizer_json_stands_for_both_files(tmp_path):
    ours, path = learn("byte_bpe"), tmp_path / "tokenizer.json"
    path.write_text(ours.copy_library().to_str())
    other = learn("byte_bpe", model=str(path))
    assert (other.pieces, other.merges) == (ours.pieces, ours.merges)
    path.write_text('{"model": {}}')
    with pytest.raises(UserError, match=r"tokenizer\.json: has no table of pieces"):
        learn("byte_bpe", model=str(path))


OTHERWISE = {
    "dropout is 0.1, and only ''": dict(dropout=0.1),
    "ignore_merges is True, and only ''": dict(ignore_merges=True),
    "continuing_subword_prefix is '##', and only ''": dict(continuing_subword_prefix="##"),
    "end_of_word_suffix is '</w>', and only ''": dict(end_of_word_suffix="</w>"),
    "'a b c' are not two pieces": dict(merges=[["a b", "c"]]),
}


@pytest.mark.parametrize("reason", OTHERWISE)
def test_a_tokenizer_json_that_merges_otherwise_is_refused(tmp_path, reason):
    path = tmp_path / "tokenizer.json"
    content = json.loads(learn("byte_bpe").copy_library().to_str())
    path.write_text(json.dumps(content | {"model": content["model"] | OTHERWISE[reason]}))
    with pytest.raises(UserError, match=re.escape(f"tokenizer.json: {reason}")):
        learn("byte_bpe", model=str(path))


def test_pieces_of_gpt1_s_end_of_word_alone_are_taken(tmp_path):
    ours, path = learn("bpe"), tmp_path / "tokenizer.json"
    content = json.loads(ours.copy_library().to_str())
    path.write_text(json.dumps(content))
    assert learn("bpe", model=str(path)).merges == ours.merges
    content["model"]["end_of_word_suffix"] = None
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="end_of_word_suffix is '', and only '</w>'"):
        learn("bpe", model=str(path))


def test_a_broken_file_beside_a_vocabulary_is_named(tmp_path):
    learn("byte_bpe").save(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UserError, match=r"tokenizer\.json is not JSON at line 1"):
        learn("byte_bpe", model=str(tmp_path))
