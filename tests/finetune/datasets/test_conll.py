"""Tagged words come out sentence by sentence, or their line is named."""

import pytest

from pretrain.runtime.errors import UserError
from tests.support.dataset_files import read_written

CONLL = """-DOCSTART- -X- O O

EU NNP B-NP B-ORG
rejects VBZ I-VP O
\t
# NN B-NP O

-DOCSTART- -X- O O

Peter NNP B-NP B-PER


"""


def test_sentences_end_at_blank_lines_and_document_lines_are_counted(tmp_path):
    found = read_written(tmp_path, "conll", CONLL)
    assert [(e["words"], e["labels"]) for e in found.examples] == [
        (["EU", "rejects"], ["B-ORG", "O"]),
        (["#"], ["O"]),
        (["Peter"], ["B-PER"]),
    ]
    assert [e["where"].rpartition(" ")[2] for e in found.examples] == ["3", "6", "10"]
    assert "-DOCSTART- lines: 2" in found.notes[0]


def test_columns_comments_and_names_of_labels_can_be_said(tmp_path):
    content = "# text\n1\tOne\tX\n# aside\n2\ttwo\tY\n\n1\tThree\tX\n"
    fields = dict(columns=(1, 2), comment="#", labels={"X": "noun", "Y": "verb"})
    found = read_written(tmp_path, "conll", content, **fields)
    assert [(e["words"], e["labels"]) for e in found.examples] == [
        (["One", "two"], ["noun", "verb"]),
        (["Three"], ["noun"]),
    ]
    assert "comments: 2" in found.notes[0]
    plain = read_written(tmp_path, "conll", "One\ntwo\n", columns=(0,))
    assert (plain.examples[0]["words"], plain.examples[0]["labels"]) == (["One", "two"], None)


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ("A O\nB\n", {}, "a.txt, line 2: 1 columns, and there should be 2"),
        ("A O\nB X O\n", {}, "line 2: 3 columns"),
        ("A O\nB X\n", {"labels": ["O"]}, "line 2: the label 'X' is not one of O"),
        ("A O\n", {"columns": (0, 2)}, "line 1: 2 columns, too few"),
        ("A\nB\n", {}, "line 1: word and label in one column"),
        ("\n \n", {}, "a.txt: empty file"),
    ],
)
def test_a_bad_line_of_words_is_named(tmp_path, content, fields, message):
    with pytest.raises(UserError, match=message):
        read_written(tmp_path, "conll", content, **fields)
