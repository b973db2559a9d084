"""Text is read in its encoding, plain or packed; JSON is checked field by field."""

import gzip

import pytest

from finetune import datasets
from finetune.datasets import files
from pretrain.runtime.errors import UserError


def test_text_is_read_in_its_encoding(tmp_path):
    (tmp_path / "a.txt").write_bytes("A café.\n".encode("latin-1"))
    assert files.text(tmp_path / "a.txt", "latin-1") == "A café.\n"
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("\ufeffA café.\n".encode()))
    assert files.text(tmp_path / "a.txt.gz") == "A café.\n"


def test_only_line_feeds_end_a_line(tmp_path):
    (tmp_path / "a.txt").write_bytes("one\x0bstill\r\n\u2028two\n\n".encode())
    assert list(files.lines(str(tmp_path / "a.txt"))) == [(1, "one\x0bstill"), (2, "\u2028two")]


@pytest.mark.parametrize(
    ("record", "kind", "message"),
    [
        ([], str, "x: should be an object with 'a', and is []"),
        ({"b": 1}, str, "x: has no 'a', but 'b'"),
        ({"a": True}, int, "x: 'a' should be a whole number, and is True"),
    ],
)
def test_a_missing_or_mistyped_field_is_named(record, kind, message):
    with pytest.raises(UserError) as error:
        files.field(record, "a", kind, "x")
    assert str(error.value) == message


def test_labels_are_renamed_or_refused():
    names = files.label_names({"0": "bad", "1": ""})
    assert [files.rename_label(raw, names, "x") for raw in "01"] == ["bad", "1"]
    with pytest.raises(UserError, match="the label '2' is not one of 0, 1"):
        files.rename_label("2", names, "x")


def test_notes_count_by_reason_with_the_first_place():
    skipped = files.Skipped()
    for line in (3, 5):
        skipped.add("bad rows", f"line {line}")
    assert skipped.notes() == ["left out: bad rows: 2, the first at line 3"]


def test_places_of_a_file_name_it_once():
    assert files.join_places(["a, b.csv, line 3", "a, b.csv, line 12"]) == "a, b.csv, line 3, 12"
    assert files.join_places(["stdin"]) == "stdin"


def test_a_missing_file_and_an_unknown_format_are_named(tmp_path):
    with pytest.raises(UserError, match=r"none\.tsv: cannot be read"):
        datasets.read("table", str(tmp_path / "none.tsv"))
    for name in ("xml", "files", ""):
        with pytest.raises(UserError, match=f"format.name='{name}': there is no"):
            datasets.read(name, "a.xml")
