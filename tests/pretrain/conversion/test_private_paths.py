"""Paths on a machine are not told to others."""

import shlex

import pytest

from pretrain.conversion.private_paths import hide_paths, hide_words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ann/secret/tokenizer", ".../tokenizer"),
        ("/home/ann/my texts/a b.txt", ".../a b.txt"),
        ("/home/ann/secret/", ".../secret"),
        ("/home/ann", "..."),
        ("~/secret/a.csv", ".../a.csv"),
        ("~ann/secret/a.csv", ".../a.csv"),
        ("../secret/a.csv", ".../a.csv"),
        ("/home/ann's (1)/secret/a.csv", ".../a.csv"),
        ("..", None),
        ("text:/home/ann/**/*.txt", "text:.../*.txt"),
        ("jsonl:/a/secret/x.jsonl,/b/secret/y.jsonl", "jsonl:.../x.jsonl,.../y.jsonl"),
        ("{'a': '/a/secret/x.csv', 'b': '/b/secret/y'}", "{'a': '.../x.csv', 'b': '.../y'}"),
        ("file:///home/ann/a.txt", "file://.../a.txt"),
        ("{here}/runs/a", "runs/a"),
        ("{here}", "."),
        ("{here}-beside/a", ".../a"),
    ],
)  # fmt: skip
def test_paths_outside_of_the_folder_are_their_last_part(text, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hidden = hide_paths(text.replace("{here}", str(tmp_path)))
    assert hidden == (f".../{tmp_path.parent.name}" if shown is None else shown)


@pytest.mark.parametrize(
    "text",
    ["runs/a", "text:data/**/*.txt", "gs://bucket/a/*.txt", "text:s3://b/a", "hf:org/name", "a/b",
     "https://host/a/b", "@main", "", "a..b", "and / or", "./a"],
)  # fmt: skip
def test_all_else_stays_as_it_is(text):
    assert hide_paths(text) == text


def test_values_of_a_recipe_are_looked_through():
    recipe = {"seed": 1, "data.train": {"path": "/x/ann/a.csv"}, "inits": ["/x/ann/b", None, 2.5]}
    assert hide_paths(recipe) == {
        "seed": 1,
        "data.train": {"path": ".../a.csv"},
        "inits": [".../b", None, 2.5],
    }


def test_a_command_stays_one():
    words = ["python", "-m", "a", "--config=/x/ann/my recipe.py:base", "--workdir", "/x/ann/r"]
    hidden = shlex.split(hide_words(shlex.join([*words, "--config.init=~/ann/it's", "/x/ann/z"])))
    assert hidden == [
        *words[:3],
        "--config=.../my recipe.py:base",
        "--workdir",
        ".../r",
        "--config.init=.../it's",
        ".../z",
    ]
    assert "ann" not in hide_words("python '/x/ann/z --workdir=/x/ann/r")
