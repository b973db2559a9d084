"""Records are documents, whatever file they come in; what is wrong is named by file and row."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest

from pretrain.runtime.errors import UserError
from tests.support.corpora import find_source, prose

TEXTS = [prose(number, 40) for number in range(5)]


@pytest.fixture
def forms(tmp_path):
    """Returns the same documents in every form, as sources."""
    for name in ("text", "lines", "rows"):
        (tmp_path / name).mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / "text" / f"{number}.txt").write_text(text)
    records = [json.dumps({"id": n, "body": text}) + "\n" for n, text in enumerate(TEXTS)]
    records.insert(2, '{"body": null}\n\n{"body": ""}\n')  # nothing to learn
    (tmp_path / "lines" / "a.jsonl").write_text("".join(records[:3]))
    (tmp_path / "lines" / "b.jsonl.gz").write_bytes(gzip.compress("".join(records[3:]).encode()))
    (tmp_path / "lines" / "notes.md").write_text("Not read.\n")
    table = pyarrow.table({"body": [*TEXTS[:2], None, *TEXTS[2:]], "id": range(6)})
    pyarrow.parquet.write_table(table, tmp_path / "rows" / "a.parquet", row_group_size=2)
    return [f"text:{tmp_path / 'text'}", f"jsonl:{tmp_path / 'lines'}", f"parquet:{tmp_path}/rows"]


def test_the_same_documents_are_read_in_every_form(forms):
    for form in forms:
        source = find_source(form, text_key="body")
        assert ["".join(document) for document in source.read()] == TEXTS


LINES = {
    "no JSON": ('{"text": "a"}\n{"text": \n', "line 2: no JSON"),
    "bytes": (b'{"text": "\xff"}\n', "line 1: no JSON"),
    "a list": ("[1]\n", "line 1: no object, but a list"),
    "another key": ('{"body": "a", "id": 1}\n', "there is no 'text', but 'body', 'id'"),
    "a number": ('{"text": 0}\n', "'text' is no text, but int 0"),
    "half a pair": ('{"text": "a\\ud800"}\n', "character 1 of 'text' is no text"),
    "NUL": ('{"text": "a\\u0000"}\n', "offset 1 is NUL"),
}


@pytest.mark.parametrize(("content", "why"), LINES.values(), ids=LINES)
def test_a_line_that_is_no_record_is_named(tmp_path, content, why):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=why) as error:
        list(map(list, find_source(f"jsonl:{path}").read()))
    assert str(error.value).startswith(f"{path}, line ")


TABLES = {
    "another column": (pyarrow.table({"body": ["a"]}), "there is no 'text', but 'body'"),
    "numbers": (pyarrow.table({"text": [None] * 600 + [1]}), "row 601: 'text' is no text, but int"),
}


@pytest.mark.parametrize(("table", "why"), TABLES.values(), ids=TABLES)
def test_a_table_without_the_text_is_named(tmp_path, table, why):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(table, path)
    with pytest.raises(UserError, match=why) as error:
        list(find_source(f"parquet:{path}").read())
    assert str(path) in str(error.value)


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS}), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        list(find_source(f"parquet:{path}").read())
