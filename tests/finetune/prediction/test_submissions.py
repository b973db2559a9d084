"""Files of predictions are as their readers want them, and whole."""

import csv
import io
import json

import pytest

from finetune.prediction import submissions
from pretrain.runtime.errors import UserError


def written(submission, pairs, folder):
    out = folder / "out"
    with submissions.open_draft(out) as file, submissions.WRITERS[submission](file) as write:
        for example, line in pairs:
            write(example, line)
    return out.read_text()


def test_the_files_are_as_their_readers_want_them(tmp_path):
    place = {"where": "a.tsv, line 1"}
    labels = [(place, {"label": "entailment"}), ({**place, "id": "7"}, {"label": "1"})]
    assert written("glue", labels, tmp_path) == "index\tprediction\n0\tentailment\n7\t1\n"
    assert written("glue", [(place, {"value": 3.25})], tmp_path).endswith("\n0\t3.25\n")
    answers = [({"id": "q1"}, {"prediction_text": "é"}), ({"id": "q2"}, {"prediction_text": ""})]
    assert json.loads(written("squad", answers, tmp_path)) == {"q1": "é", "q2": ""}
    lines = [json.loads(x) for x in written("", labels, tmp_path).splitlines()]
    assert lines == [{**place, "label": "entailment"}, {**place, "id": "7", "label": "1"}]
    for submission, wrong in (("glue", answers), ("squad", labels)):
        with pytest.raises(UserError, match=f"--submission={submission}: "):
            written(submission, wrong, tmp_path)


def test_a_table_has_a_row_for_each_example():
    reason = {"label": None, "probabilities": None, "reason": "empty"}
    lines = [
        ({"where": "a.csv, line 1"}, reason),
        ({"where": "a.csv, line 2"}, {"label": "a, b", "probabilities": {"a, b": 0.75, "c": 0.25}}),
        ({"where": "a.csv, line 3"}, {"label": "c", "probabilities": {"a, b": 0.5, "c": 0.5}}),
    ]
    file = io.StringIO()
    with submissions.choose_writer("", "out.csv")(file) as write:
        for example, line in lines:
            write(example, line)
    head, *rows = csv.reader(file.getvalue().splitlines())
    assert head == ["where", "label", "probabilities.a, b", "probabilities.c", "reason"]
    assert rows == [
        ["a.csv, line 1", "", "", "", "empty"],
        ["a.csv, line 2", "a, b", "0.75", "0.25", ""],
        ["a.csv, line 3", "c", "0.5", "0.5", ""],
    ]
    file = io.StringIO()
    with submissions.choose_writer("", "out.tsv")(file) as write:
        write({}, {"labels": ["é", "O"], "value": 0.5})
    assert file.getvalue() == 'labels\tvalue\treason\n"[""é"", ""O""]"\t0.5\t\n'
    file = io.StringIO()
    with submissions.choose_writer("", "out.csv")(file) as write:
        write({}, reason)
    assert file.getvalue() == "label,probabilities,reason\n,,empty\n"
    for names in (("", "-"), ("", "out.jsonl"), ("glue", "out.tsv")):
        assert submissions.choose_writer(*names) == submissions.WRITERS[names[0]]


def test_a_table_that_would_lose_a_value_is_refused():
    writer = submissions.choose_writer("", "OUT.CSV")
    wrong = pytest.raises(UserError, match="a prediction has 'else', which the first has not")
    with wrong, writer(io.StringIO()) as write:
        write({}, {"label": "a"})
        write({}, {"else": 1})
    with pytest.raises(UserError, match=r"out\.xlsx: predictions are written to an out\.jsonl"):
        submissions.choose_writer("", "out.xlsx")


def test_a_file_has_its_name_only_when_all_is_in_it(tmp_path):
    out = tmp_path / "out"
    out.write_text("before")
    with pytest.raises(KeyError), submissions.open_draft(out) as file:
        file.write({}["half"])
    assert out.read_text() == "before"
    assert list(tmp_path.iterdir()) == [out]
    nowhere = tmp_path / "no" / "x"
    with pytest.raises(UserError, match="cannot be written"), submissions.open_draft(nowhere):
        pass
