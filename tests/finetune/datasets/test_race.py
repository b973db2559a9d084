"""Passages give their questions in order, or the file is named."""

import pytest

from finetune import datasets
from pretrain.runtime.errors import UserError
from tests.support.dataset_files import read_written

RACE = {
    "id": "high1.txt",
    "article": "A passage.",
    "answers": ["B", "A"],
    "questions": ["It is _ .", "Why?"],
    "options": [["a", "b", "c", "d"], ["e", "f", "g", "h"]],
}


def test_race_folders_read_in_the_order_of_paths(tmp_path):
    middle = {**RACE, "id": "middle2.txt", "answers": ["D", "C"]}
    read_written(tmp_path, "race", middle, "train/middle/2.txt")
    read_written(tmp_path, "race", RACE, "train/high/1.txt")
    found = datasets.read("race", str(tmp_path / "train"))
    assert [e["label"] for e in found.examples] == [1, 0, 3, 2]
    assert [e["id"] for e in found.examples][:2] == ["high1.txt-0", "high1.txt-1"]
    assert found.examples[1]["texts"] == ["A passage.", "Why?"]
    assert found.examples[1]["choices"] == ["e", "f", "g", "h"]
    hidden = {name: value for name, value in RACE.items() if name != "answers"}
    assert read_written(tmp_path, "race", hidden).examples[0]["label"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers": ["B"]}, "a.txt: questions, options and answers should be as many"),
        ({"answers": ["B", "E"]}, "question 2: the right choice is 4, of 0 to 3"),
        ({"answers": ["B", "b"]}, "question 2: the answer 'b' is not a letter"),
        ({"options": [["a"], ["b", "c"]]}, "question 1: 1 choices"),
        ({"options": [["a", " "], ["b", "c"]]}, "question 1: choice 1 is empty"),
        ({"article": ""}, "a.txt: the article is empty"),
        ({"questions": None}, "'questions' should be a list"),
    ],
)
def test_a_bad_passage_is_named(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read_written(tmp_path, "race", RACE | change)


def test_a_folder_without_passages_is_named(tmp_path):
    with pytest.raises(UserError, match=r"holds no \.txt files"):
        datasets.read("race", str(tmp_path))
