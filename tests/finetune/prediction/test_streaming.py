"""A file in pieces is the file, with its own lines in places and errors."""

import gzip
import itertools
import json

import pytest

from finetune import datasets
from finetune.prediction.streaming import read_blocks
from pretrain.runtime.errors import UserError

TABLE = "".join(f"text {i}\t{i % 2}\n" for i in range(11))
CSV = 'sentence,label\n"a, b",1\n"c\nd",0\n"e",1\n'
JSONL = "".join(json.dumps({"sentence": f"text {i}", "label": str(i)}) + "\n" for i in range(9))
CHOICE = "".join(json.dumps(dict(query=f"q {i}", choices=["a", "b"], gold=1)) + "\n" for i in "abc")
RANK = "".join(json.dumps(dict(query=i, candidates=["a"], relevance=[1])) + "\n" for i in "abc")
FILES = {  # name, content, format, fields
    "a table with a header": ("a.tsv", "sentence\tlabel\n" + TABLE, "table", {}),
    "a table without": ("a.tsv", TABLE, "table", dict(header=False, texts=(0,), label=1)),
    "a packed one": ("a.tsv.gz", TABLE, "table", dict(header=False, texts=(0,), label=1)),
    "a byte order mark": ("a.tsv", "\ufeffsentence\tlabel\r\n" + TABLE, "table", {}),
    "blank lines above": ("a.tsv", "\n \r\nsentence\tlabel\n\n" + TABLE, "table", {}),
    "a mark and a blank line": ("a.tsv", "\ufeff\nsentence\tlabel\n" + TABLE, "table", {}),
    "an empty header": ("a.tsv", "\t\n" + TABLE, "table", dict(texts=(0,), label=1)),
    "blank lines at the end": ("a.tsv", "sentence\tlabel\n" + TABLE + "\n\n", "table", {}),
    "no end of the last line": ("a.tsv", ("sentence\tlabel\n" + TABLE)[:-1], "table", {}),
    "lines": ("a.txt", "".join(f"{i} text\n" for i in range(7)), "table", dict(kind="lines")),
    "lines, label first": ("a.txt", "0 a\n1 b\n2 c\n", "table", dict(label_first=True)),
    "JSON lines": ("a.jsonl", JSONL, "table", {}),
    "choices": ("a.jsonl", CHOICE, "multiple_choice", {}),
    "candidates": ("a.jsonl", RANK, "ranking", {}),
    "pairs": ("a.tsv", "q\ta\t1\np\tb\t0\nq\tc\t0\n", "ranking", {}),
    "quotes": ("a.csv", CSV, "table", {}),
    "sentences": ("a.txt", "A O\n\nB O\nC O\n\nD O\n", "conll", {}),
}


def write(folder, name, content):
    path = folder / name
    raw = content.encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return str(path)


@pytest.mark.parametrize("case", FILES)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_blocks_together_are_the_file_read_at_once(tmp_path, case, size):
    name, content, format, fields = FILES[case]
    path = write(tmp_path, name, content)
    found = list(read_blocks(path, format, fields, size))
    assert all(len(block.examples) <= size for block in found)
    whole = datasets.read(format, path, **fields).examples
    assert [x for block in found for x in block.examples] == whole


def test_no_more_than_a_block_is_read_before_it_is_asked_for(tmp_path):
    path = write(tmp_path, "a.tsv", "sentence\tlabel\n" + TABLE + "broken\n")
    found = read_blocks(path, "table", {}, 4)
    first = list(itertools.islice(found, 2))
    assert sum(len(block.examples) for block in first) == 8
    with pytest.raises(UserError, match=r"/a\.tsv, line 13: 1 columns, and there should be 2"):
        next(found)


def test_what_is_left_out_is_named_by_the_lines_of_the_file(tmp_path):
    path = write(tmp_path, "a.tsv", "sentence\tlabel\n" + "broken\n" * 3 + TABLE + "broken\n")
    found = list(read_blocks(path, "table", dict(strict=False), 3))
    assert sum(len(block.examples) for block in found) == 11
    notes = [note for block in found for note in block.notes]
    assert [note.partition("the first at ")[2].partition(":")[0] for note in notes] == [
        f"{path}, line 2",
        f"{path}, line 16",
    ]


def test_rows_with_a_gap_are_named_by_the_lines_of_the_file(tmp_path):
    path = write(tmp_path, "a.tsv", "sentence\tlabel\n" + "a\t1\n" * 3 + "\t1\n" * 2 + "a\t1\n")
    *_, found = read_blocks(path, "table", {}, 3)
    assert found.notes[0].endswith(f"the first at {path}, line 5, 6")


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ("sentence\tlabel\n", {}, r"a\.tsv holds no examples"),
        ("", {}, r"a\.tsv: empty file"),
        ("sentence\tlabel\n" + TABLE, {"labels": ["0"]}, r"a\.tsv, line 3: the label '1'"),
        ("sentence\tlabel\n" + TABLE, {"text": 0}, r"fields: .*unexpected keyword argument 'text'"),
        ("sentence\tlabel\n" + TABLE + "a\n\nb\t1\n", {}, r"a\.tsv, line 13: 1 columns"),
        ("\n\nsentence\tlabel\n" + TABLE + "a\n", {}, r"a\.tsv, line 15: 1 columns"),
        ("\n \n", {}, r"a\.tsv: empty file"),
    ],
)
def test_errors_name_the_file(tmp_path, content, fields, message):
    with pytest.raises(UserError, match=message) as caught:
        list(read_blocks(write(tmp_path, "a.tsv", content), "table", fields, 2))
    assert str(caught.value).count("/a.tsv") <= 1
