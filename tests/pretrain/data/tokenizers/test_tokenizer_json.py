"""Every part of a tokenizer.json is read as its library wrote it, or named where it is none."""

import json

import pytest
import tokenizers as library
from tokenizers import AddedToken, models

from pretrain.data.tokenizers import tokenizer_json
from pretrain.runtime.errors import UserError

PIECES = ["[UNK]", "a", "b", "ab", " ", " b"]
IDS = {piece: i for i, piece in enumerate(PIECES)}
MERGES = [("a", "b"), (" ", "b")]
MODELS = {
    "BPE": models.BPE(IDS, MERGES),
    "WordPiece": models.WordPiece(IDS),
    "Unigram": models.Unigram([(piece, -float(i)) for i, piece in enumerate(PIECES)], 0),
}


def write(kind, path):
    """Saves such a model with two added pieces by the library; returns its tokenizer."""
    theirs = library.Tokenizer(MODELS[kind])
    theirs.add_tokens([AddedToken("ab ab", single_word=True)])
    theirs.add_special_tokens(["[UNK]"])
    theirs.save(str(path))
    return theirs


@pytest.fixture
def path(tmp_path):
    return tmp_path / tokenizer_json.NAME


def test_pieces_and_scores_are_those_of_the_library(path):
    write("WordPiece", path)
    assert tokenizer_json.read(path).read_pieces("WordPiece") == PIECES
    write("Unigram", path)
    assert tokenizer_json.read(path).read_scores() == [
        (piece, -float(i)) for i, piece in enumerate(PIECES)
    ]


def test_merges_are_those_of_the_library_and_added_pieces_have_their_ids(path):
    theirs = write("BPE", path)
    ids, merges = tokenizer_json.read(path).read_merges()
    assert merges == MERGES
    assert ids == theirs.get_vocab(with_added_tokens=True) == IDS | {"ab ab": 6}


def test_merges_in_one_text_are_the_same_pairs():
    for merges in (["a b", "ab a"], [["a", "b"], ["ab", "a"]]):
        text = json.dumps({"model": {"vocab": {}, "merges": merges}})
        assert tokenizer_json.parse(text, "x").read_merges()[1] == [("a", "b"), ("ab", "a")]


def test_added_pieces_have_all_flags_by_their_ids(path):
    write("BPE", path)
    added = tokenizer_json.read(path).read_added()
    plain = dict(lstrip=False, rstrip=False)
    assert added == {
        0: dict(content="[UNK]", single_word=False, normalized=False, special=True, **plain),
        6: dict(content="ab ab", single_word=True, normalized=True, special=False, **plain),
    }
    assert {x: library.AddedToken(**piece).content for x, piece in added.items()} == {
        0: "[UNK]",
        6: "ab ab",
    }


def test_a_part_is_of_its_kind_or_is_not_there():
    whole = tokenizer_json.parse('{"normalizer": {"type": "NFC", "x": 1}, "decoder": null}', "x")
    assert whole.read_part("normalizer", "NFC") == {"type": "NFC", "x": 1}
    assert whole.read_part("pre_tokenizer", "ByteLevel") is None
    for name, other in (("normalizer", "'NFC'"), ("decoder", "None")):
        with pytest.raises(UserError, match=f"^x: {name} is {other}, and only NFD can be"):
            whole.read_part(name, "NFD")


def model(**fields):
    return json.dumps({"model": fields})


BROKEN = [  # the text, what is read, what the error says
    ("{", "read_merges", "is no tokenizer.json, nor any JSON: Expecting"),
    ("[" * 100_000, "read_merges", "is no tokenizer.json, nor any JSON: "),
    ("[]", "read_merges", "is no tokenizer.json: it is no object"),
    ("{}", "read_merges", "is no tokenizer.json: it has no model"),
    ('{"model": []}', "read_scores", "is no tokenizer.json: it has no model"),
    (model(type="Unigram"), "read_merges", "is no BPE tokenizer: its model is 'Unigram'"),
    (model(), "read_merges", "has no table of pieces"),
    (model(vocab=["a"]), "read_merges", "has no table of pieces"),
    (model(vocab={}), "read_merges", "has no merges"),
    (model(vocab={}, merges="ab"), "read_merges", "has no merges"),
    (model(vocab={}, merges=["a b c"]), "read_merges", "'a b c' among its merges is no pair"),
    (model(vocab={}, merges=[["a", 1]]), "read_merges", "['a', 1] among its merges is no pair"),
    (model(vocab={}, merges=[None]), "read_merges", "None among its merges is no pair"),
    (model(vocab={"a": 0}), "read_scores", "its vocabulary is no list of pieces, scores"),
    (model(vocab=[["a"]]), "read_scores", "its vocabulary is no list of pieces, scores"),
    (model(vocab=[[1, 0.0]]), "read_scores", "its vocabulary is no list of pieces, scores"),
    (model(vocab=[["a", "x"]]), "read_scores", "its vocabulary is no list of pieces, scores"),
    ('{"added_tokens": [{"id": 1}]}', "read_added", "its added tokens are not as they should be"),
    ('{"added_tokens": [{"content": "a"}]}', "read_added", "its added tokens are not as they"),
    ('{"added_tokens": [3]}', "read_added", "its added tokens are not as they should be"),
    ('{"added_tokens": 3}', "read_added", "its added tokens are not as they should be"),
    ('{"added_tokens": [{"id": true, "content": "a"}]}', "read_added", "its added tokens are"),
]


@pytest.mark.parametrize(("text", "part", "reason"), BROKEN)
def test_a_file_that_is_none_is_named_in_one_line(path, text, part, reason):
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        getattr(tokenizer_json.read(path), part)()
    message = str(caught.value)
    assert message.startswith(f"{path}: {reason}")
    assert "\n" not in message


@pytest.mark.parametrize("ids", [{"a": 1}, {"a": 0, "b": 0}, {"a": False}, {"a": "0"}, {}])
def test_ids_that_are_no_rows_of_a_table_are_refused(ids):
    with pytest.raises(UserError, match=r"^x: its vocabulary has no ids 0, 1, 2 \.\.\."):
        tokenizer_json.parse(model(vocab=ids), "x").read_pieces("WordPiece")


def test_a_file_that_cannot_be_read_is_named(path):
    with pytest.raises(UserError, match=r"^cannot read .*tokenizer\.json: No such file"):
        tokenizer_json.read(path)
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"tokenizer\.json is not UTF-8 at byte 0"):
        tokenizer_json.read(path)
