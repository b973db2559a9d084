"""Files of records and tables are refused, and prose is not."""

import json
import re
import subprocess
import sys

import pytest

from pretrain.runtime.errors import UserError
from tests.support.corpora import find_source

READ = dict.fromkeys(["a.jsonl", "a.ndjson", "a.jsonl.gz", "a.JSONL.zst"], "source='jsonl:")
NAMES = {"a.parquet": "source='parquet:", **READ}
NAMES |= dict.fromkeys(["a.json", "a.csv", "a.tsv", "a.arrow", "b.csv.gz"], "python -c")


@pytest.mark.parametrize(("name", "advice"), NAMES.items())
def test_files_of_records_are_refused_by_name(tmp_path, name, advice):
    (tmp_path / name).write_text("Anything at all.\n")
    with pytest.raises(UserError, match=rf"{name} holds .*: .*{advice}") as error:
        find_source(f"text:{tmp_path}/*")
    assert "\n" not in str(error.value)


ROW = '{"text": "One. Two.", "id": 7}\n'


RECORDS = {
    "lines": ROW * 3,
    "one line": ROW,
    "after blank lines": "\n \n" + ROW,
    "a byte order mark": "\ufeff" + ROW * 2,
    "many lines": ROW * 9000,
    "one long line": json.dumps({"text": "word " * 40_000}),
    "a list": json.dumps([{"text": "One."}] * 3),
    "a long list": json.dumps([{"text": "One."}] * 9000, indent=1),
    "an object over lines": json.dumps({"text": ["One."], "id": {}}, indent=4),
    "deep": '{"a":' * 50_000,
    "Parquet": b"PAR1\x15\x04\x15\x10",
    "Arrow": b"ARROW1\0\0\xff\xff\xff\xff",
    "an Arrow stream": b"\xff\xff\xff\xff\x10\x01\0\0",
}


@pytest.mark.parametrize("content", RECORDS.values(), ids=RECORDS.keys())
def test_records_are_refused_whatever_their_name(tmp_path, content):
    path = tmp_path / "text.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=r"text\.txt holds "):
        "".join(next(find_source(f"text:{path}").read()))


PROSE = [
    '{"Hello," he said.\n',
    '{"Hello"}\n',
    '"Hello," he said.\n',
    "{Applause} Thank you.\n",
    '{"a": 1} is an object.\n',
    '{"a": 1}\nThis was an object.\n',
    '{"a": 1}, {"b": 2}\n',
    "[1] A note.\n",
    "[1]\n",
    "[Illustration]\n",
    "[]\n",
    "PAR1 and ARROW1 are magic.\n",
    '{\n"Oh," she cried. ' + "Word " * 40_000 + "\n",
    "[" * 70_000 + "\n",
    "a,b,c\n1,2,3\n",
    "{\n",
]


@pytest.mark.parametrize("content", PROSE, ids=range(len(PROSE)))
def test_prose_that_begins_like_records_is_read(tmp_path, content):
    path = tmp_path / "text.txt"
    path.write_text(content)
    assert "".join(next(find_source(f"text:{path}").read())) == content


@pytest.mark.parametrize("name", ["a.json", "a.csv", "a.tsv"])
def test_a_refusal_says_how_to_take_out_the_text(tmp_path, name):
    long = "Three" * 30_000  # a cell longer than the reader takes by default
    rows = [{"id": "7", "text": "One. Two."}, {"id": "8", "text": long}]
    between = "\t" if name == "a.tsv" else ","
    lines = [between.join(["id", "text"]), *(between.join(row.values()) for row in rows)]
    (tmp_path / name).write_text(json.dumps(rows) if name == "a.json" else "\n".join(lines))
    with pytest.raises(UserError) as error:
        find_source(f"text:{tmp_path / name}")
    command = re.search(r"python -c .* > a\.txt", str(error.value))[0]
    subprocess.run(command.replace("python", sys.executable), shell=True, check=True, cwd=tmp_path)
    assert (tmp_path / "a.txt").read_text() == f"One. Two.\n\n{long}\n\n"
