"""Rows of any table become the same examples; what is wrong is named by file and line."""

import csv
import gzip
import json
import random

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from finetune import datasets
from pretrain.runtime.errors import UserError

ROWS = [("A café.", "yes"), ('Two "words", one\ttab', "no"), ("Third.", "yes")]


def write(folder, name, content, encoding="utf-8"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
    return str(path)


def table(folder, content, name="a.tsv", **fields):
    return datasets.read("table", write(folder, name, content), **fields)


def pairs(read):
    return [(*example["texts"], example["label"]) for example in read.examples]


def test_all_kinds_of_file_give_the_same_examples(tmp_path):
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([("label", "sentence"), *((lab, t) for t, lab in ROWS)])
    objects = "".join(json.dumps({"sentence": t, "label": lab}) + "\n" for t, lab in ROWS)
    lines = "".join(f"{label} {text}\n" for text, label in ROWS)
    assert pairs(datasets.read("table", str(tmp_path / "a.csv"))) == ROWS
    assert pairs(table(tmp_path, objects, "a.jsonl")) == ROWS
    assert pairs(table(tmp_path, lines, "a.all", label_first=True)) == ROWS
    names = ("sentence", "label")
    columns = {
        name: list(cells) for name, cells in zip(names, zip(*ROWS, strict=True), strict=True)
    }
    parquet.write_table(pyarrow.table(columns | {"else": [1, 2, 3]}), tmp_path / "a.parquet")
    assert pairs(datasets.read("table", str(tmp_path / "a.parquet"))) == ROWS


def test_columns_without_names_are_numbers_however_they_are_spelled(tmp_path):
    fields = dict(header=False, texts=("1",), label="0")
    assert pairs(table(tmp_path, "yes\tA café.\nno\tThird.\n", **fields)) == [
        ROWS[0],
        ("Third.", "no"),
    ]
    with pytest.raises(UserError, match="there is no column 2, but 2, by number"):
        table(tmp_path, "yes\tA café.\n", **fields | {"label": "2"})


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_to_predict_need_not_have_the_label(tmp_path, kind):
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        parquet.write_table(pyarrow.table({"sentence": ["One."]}), path)
    else:
        path.write_text("sentence\nOne.\n" if kind == "csv" else '{"sentence": "One."}\n')
    assert pairs(datasets.read("table", str(path), needs_label=False)) == [("One.", None)]
    with pytest.raises(UserError, match="label"):
        datasets.read("table", str(path))
    with pytest.raises(UserError, match="'text', but 'sentence'"):
        datasets.read("table", str(path), texts=("text",), needs_label=False)


def test_quoted_cells_come_back_with_their_lines(tmp_path):
    draw = random.Random(0)
    cells = ["".join(draw.choices("ab\",\n\t' é\x85\u2028", k=9)) + "." for _ in range(80)]
    rows = list(zip(cells[::2], cells[1::2], strict=True))
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    found = datasets.read("table", str(tmp_path / "a.csv"), header=False, texts=(0, 1), label="")
    assert [ex["texts"] for ex in found.examples] == [[a.strip(), b.strip()] for a, b in rows]
    begins = 1
    for example, row in zip(found.examples, rows, strict=True):
        assert example["where"].endswith(f", line {begins}")
        begins += 1 + sum(cell.count("\n") for cell in row)


def test_tsv_has_no_quoting_and_only_newlines_end_a_line(tmp_path):
    found = table(tmp_path, 'sentence\tlabel\r\n"Open quote\t1\r\nNext\x85line\u2028\v.\t0\r\n\r\n')
    assert pairs(found) == [('"Open quote', "1"), ("Next\x85line\u2028\v.", "0")]
    assert found.examples[1]["where"].endswith("a.tsv, line 3")


@pytest.mark.parametrize("quoting", [True, False])
def test_quoting_can_be_said(tmp_path, quoting):
    found = table(tmp_path, 'sentence\tlabel\n"a"\t1\n', quoting=quoting)
    assert pairs(found) == [("a" if quoting else '"a"', "1")]


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_packed_files_and_byte_order_marks_change_nothing(tmp_path, pack):
    content = b"\xef\xbb\xbfsentence\tlabel\nA.\t1\n"
    name = "a.tsv" + {gzip.compress: ".gz", zstandard.compress: ".zst"}[pack]
    assert pairs(table(tmp_path, pack(content), name)) == [("A.", "1")]


def test_columns_go_by_name_or_number_and_labels_get_names(tmp_path):
    content = "id\ta\tb\tgold\n7\tOne\tTwo\t0\n8\tThree\tFour\t-\n9\tFive\tSix\t1\n"
    fields = dict(
        texts=("b", 1), label="gold", id="id", labels={"0": "no", "1": "yes"}, skip=("-",)
    )
    found = table(tmp_path, content, **fields)
    assert pairs(found) == [("Two", "One", "no"), ("Six", "Five", "yes")]
    assert [example["id"] for example in found.examples] == ["7", "9"]
    assert len(found.notes) == 1
    assert "'-': 1" in found.notes[0]
    assert "line 3" in found.notes[0]


def test_labels_end_before_a_sign_and_are_renamed(tmp_path):
    content = "NUM:date:year When ?\nHUM:ind Who ?\n3 What ?\n"
    fields = dict(label_first=True, until=":")
    found = pairs(table(tmp_path, content, "a.all", **fields))
    assert found == [("When ?", "NUM"), ("Who ?", "HUM"), ("What ?", "3")]
    names = {"NUM": "number", "HUM": "person", "3": "3"}
    found = pairs(table(tmp_path, content, "a.all", **fields, labels=names))
    assert [label for _, label in found] == ["number", "person", "3"]
    with pytest.raises(UserError, match=r"line 2: the label is empty"):
        table(tmp_path, "NUM:date A.\n:ind B.\n", "a.all", **fields)


def test_number_labels_are_numbers_and_no_label_is_none(tmp_path):
    content = "sentence\tlabel\nA.\t3.25\nB.\t-1e-3\n"
    assert pairs(table(tmp_path, content, number=True)) == [("A.", 3.25), ("B.", -0.001)]
    assert pairs(table(tmp_path, content, label="")) == [("A.", None), ("B.", None)]
    assert pairs(table(tmp_path, '{"sentence": "A.", "label": 2}', "a.jsonl")) == [("A.", "2")]


def test_bad_rows_can_be_left_out_and_are_counted(tmp_path):
    content = "sentence\tlabel\nA.\t1\nbroken\n\t0\nB.\t0\n"
    found = table(tmp_path, content, strict=False, empty="error")
    assert pairs(found) == [("A.", "1"), ("B.", "0")]
    assert "bad rows: 2" in found.notes[0]
    assert "line 3" in found.notes[0]
    assert pairs(table(tmp_path, "sentence\tlabel\n\t0\n", empty="keep")) == [("", "0")]


def test_rows_with_an_empty_cell_are_left_out_and_counted(tmp_path):
    content = "sentence\tlabel\nA.\t1\n\t0\nB.\t \nC.\t0\n" + " \t\n" * 2
    found = table(tmp_path, content)
    assert pairs(found) == [("A.", "1"), ("C.", "0")]
    assert found.notes[0].endswith("): 4, the first at " + str(tmp_path / "a.tsv, line 3, 4, 6"))
    lines = ['{"sentence": null, "label": "1"}', '{"sentence": "A.", "label": null}']
    with pytest.raises(UserError, match=r"holds no examples; left out: rows with an empty .*: 2"):
        table(tmp_path, "\n".join(lines), "a.jsonl")
    with pytest.raises(UserError, match="empty='no' is not one of skip, error, keep"):
        table(tmp_path, content, empty="no")


def test_no_row_to_predict_is_left_out(tmp_path):
    content = "id\tsentence\tlabel\n1\tA.\t \n2\t\t0\n"
    whole, empty = table(tmp_path, content, needs_label=False, id="id").examples
    assert (whole["texts"], whole["label"], "gap" in whole) == (["A."], None, False)
    where = str(tmp_path / "a.tsv, line 3")
    gap = dict(texts=[""], label=None, id="2", where=where, gap="'sentence' is empty")
    assert empty == gap


def test_a_table_has_the_delimiter_that_is_named(tmp_path):
    content = 'sentence;label\n"A; b";1\n'
    assert pairs(table(tmp_path, content, "a.csv", delimiter=";")) == [("A; b", "1")]
    with pytest.raises(UserError, match=r"parted by ';': --config\.data\.delimiter=';', or to"):
        table(tmp_path, content, "a.csv")
    content = content.replace(";", "\t")
    assert pairs(table(tmp_path, content, "a.csv", delimiter="\\t")) == [("A\t b", "1")]
    with pytest.raises(UserError, match=r"delimiter='\\t'"):
        table(tmp_path, content, "a.csv")


HEAD = "sentence\tlabel\n"
OBJECT = '{"sentence": "A.", "label": "1"}\n'


@pytest.mark.parametrize(
    ("name", "content", "fields", "message"),
    [
        ("a.tsv", HEAD + "A.\t1\nB.\n", {}, "a.tsv, line 3: 1 columns, and there should be 2"),
        ("a.tsv", HEAD + "A.\t1\t\n", {}, "line 2: 3 columns"),
        ("a.tsv", HEAD + "A.\t1\nB.\n", {}, "line 3: 1 columns"),
        ("a.tsv", HEAD + " \t1\n", {"empty": "error"}, "line 2: 'sentence' is empty"),
        ("a.tsv", HEAD + "A.\t\n", {"empty": "error"}, "line 2: the label is empty"),
        ("a.tsv", HEAD + "A.\t2\n", {"labels": ("0", "1")}, "line 2: the label '2' is not one of"),
        ("a.tsv", HEAD + "A.\tx\n", {"number": True}, "line 2: the label 'x' is not a number"),
        ("a.tsv", HEAD + "A.\tnan\n", {"number": True}, "line 2: the label 'nan' is not a number"),
        ("a.tsv", HEAD.encode() + b"A.\xe9\t1\n", {}, "line 2: the byte at offset 17 is not UTF-8"),
        ("a.tsv", HEAD + "A\0.\t1\n", {}, "line 2: a NUL byte"),
        ("a.tsv", HEAD + "A.\t1\n", {"texts": ("text",)}, "line 1: there is no column 'text', but"),
        ("a.tsv", "A.\t1\n", {"header": False}, "no column 'sentence', but 2, by number"),
        ("a.tsv", "A.\t1\n", {"header": False, "texts": (2,)}, "there is no column 2"),
        ("a.tsv", "", {}, "a.tsv: empty file"),
        ("a.csv", '""\n""\n', {}, "a.csv: has no row with anything in it"),
        ("a.tsv", HEAD, {}, "a.tsv holds no examples"),
        ("a.txt", HEAD, {}, "a.txt: say what it is, kind="),
        ("a.tsv", HEAD, {"delimiter": "::"}, "delimiter='::' is to be one character"),
        ("a.tsv", HEAD + "A.\t1\n", {"label": "sentence"}, "texts and label are the same column"),
        ("a.tsv", HEAD.encode() + b"\xe9\t1\n", {}, "--config.data.encoding=latin-1"),
        ("a.tsv", HEAD, {"kind": "xml"}, "kind='xml' is not one of tsv"),
        ("a.tsv", HEAD, {"encoding": "latin-99"}, "encoding='latin-99' is not known"),
        ("a.csv", 'sentence,label\n"A.\n', {}, "a.csv, line 2: unexpected end of data"),
        ("a.csv", 'sentence,label\n"A"b,1\n', {}, "a.csv, line 2: "),
        ("a.jsonl", OBJECT + "{\n", {}, "a.jsonl, line 2: is not JSON"),
        ("a.jsonl", OBJECT + '{"sentence": "A."}\n', {}, "line 2: has no 'label', but 'sentence'"),
        ("a.jsonl", OBJECT + "[]\n", {}, "line 2: should be an object"),
        ("a.jsonl", OBJECT.replace('"A."', "3"), {}, "line 1: 'sentence' should be text"),
        ("a.jsonl", OBJECT.replace('"1"', "[]"), {}, "line 1: a label or id should be text"),
        ("a.jsonl", OBJECT.replace('"1"', "true"), {"number": True}, "True is not a number"),
        ("a.jsonl", OBJECT.replace("A.", r"\ud83d"), {}, "line 1: 'sentence' has half a character"),
        ("a.all", "1 A.\n0\n", {"label_first": True}, "a.all, line 2: 1 columns"),
    ],
)
def test_what_is_wrong_is_named_by_file_and_line(tmp_path, name, content, fields, message):
    with pytest.raises(UserError) as caught:
        table(tmp_path, content, name, **fields)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "\nsentence,label\n\nA.,0\n  \n\nB.,1\n"),
        ("a.tsv", "sentence\tlabel\n\nA.\t0\n \nB.\t1\n"),
        ("a.jsonl", '{"sentence": "A.", "label": 0}\n\n \n{"sentence": "B.", "label": 1}\n'),
    ],
)
def test_blank_lines_between_rows_are_no_rows(tmp_path, name, content):
    read = table(tmp_path, content, name)
    assert pairs(read) == [("A.", "0"), ("B.", "1")]
    assert not read.notes
    line = {"a.csv": 7, "a.tsv": 5, "a.jsonl": 4}[name]
    assert read.examples[1]["where"].endswith(f"line {line}")


def test_a_blank_line_of_a_single_column_is_an_empty_cell_unless_quotes_are_read(tmp_path):
    options = dict(needs_label=False)
    *_, last = table(tmp_path, "sentence\nA.\n\nB.\n", "a.csv", **options).examples
    assert last["where"].endswith("line 4")
    assert len(table(tmp_path, "sentence\nA.\n\nB.\n", "a.csv", **options).examples) == 2
    assert table(tmp_path, "sentence\nA.\n\nB.\n", **options).examples[1]["gap"]
