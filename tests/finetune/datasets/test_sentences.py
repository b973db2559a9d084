"""Sentences are read one by one, those of test files only where the recipe says so."""

import pytest

from finetune import datasets
from pretrain.runtime.errors import UserError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.csv").write_text("a b,c d,5.0\ne,a b,0.5\n")
    (tmp_path / "lines.txt").write_text("One, two.\n three\n")
    (tmp_path / "STS12").mkdir()
    (tmp_path / "STS12" / "STS.input.news.txt").write_text("g\th\n")
    (tmp_path / "STS12" / "STS.gs.news.txt").write_text("1.0\n")
    return str(tmp_path)


def read(folder, **fields):
    whole = datasets.read("sentences", folder, **fields)
    assert all(x["label"] is None and len(x["texts"]) == 1 for x in whole.examples)
    return [x["texts"][0] for x in whole.examples], whole


def test_pairs_are_split_and_lines_are_whole(folder):
    assert read(folder, files=("train.csv", "STS12"))[0] == ["a b", "c d", "e", "a b", "g", "h"]
    texts, whole = read(f"{folder}/lines.txt", lines=True)
    assert texts == ["One, two.", "three"]
    assert whole.examples[-1]["where"] == f"{folder}/lines.txt, line 2"


def test_test_sentences_are_read_by_the_switch(folder):
    fields = dict(files=("train.csv",), test_files=("STS12",))
    texts, whole = read(folder, **fields)
    assert "g" not in texts
    assert whole.notes == ["left out: the sentences of STS12"]
    assert read(folder, **fields, test_sentences=True)[0][-2:] == ["g", "h"]


def test_a_blank_line_is_refused(folder, tmp_path):
    (tmp_path / "lines.txt").write_text("one\n\ntwo\n")
    with pytest.raises(UserError, match=r"lines.txt, line 2: the line is empty"):
        read(folder, files=("lines.txt",), lines=True)
