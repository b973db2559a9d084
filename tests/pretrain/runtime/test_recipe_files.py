"""How recipes are found, and what is said of those that fail."""

from pathlib import Path

import pytest

from pretrain.runtime import recipe_files
from pretrain.runtime.errors import UsageError, UserError
from tests.support.tiny_runs import ROOT


@pytest.mark.parametrize(
    ("named", "command", "file"),
    [
        ("bert:base", "pretrain", "configs/bert.py:base"),
        ("configs/bert.py", "pretrain", "configs/bert.py"),
        ("ulmfit", "pretrain", "configs/ulmfit.py"),
        ("ulmfit", "finetune", "configs/finetune/ulmfit.py"),
        ("finetune/ulmfit:trec", "pretrain", "configs/finetune/ulmfit.py:trec"),
        ("sst2", "pretrain", "configs/finetune/sst2.py"),
    ],
)
def test_a_name_finds_the_recipe_of_its_command(tmp_path, monkeypatch, named, command, file):
    monkeypatch.chdir(tmp_path)
    assert recipe_files.find(named, command) == str(ROOT / file)


def test_a_file_of_the_users_comes_before_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("configs").mkdir()
    Path("configs", "bert.py").write_text("")
    assert recipe_files.find("configs/bert.py:mini") == "configs/bert.py:mini"
    assert recipe_files.find("none:mini") == "none:mini"


def test_all_recipes_are_listed_and_nothing_else():
    files = [str(file) for file in recipe_files.list_files()]
    assert {"configs/bert.py", "configs/finetune/sst2.py"} <= set(files)
    assert not [file for file in files if "common" in file or "__init__" in file]


START = "from ml_collections import ConfigDict\n\n\ndef get_config():\n"
BROKEN = {  # a recipe, and the line that is named; 0: none
    "syntax": (START + "    return (\n", 5, "SyntaxError"),
    "exception": (START + "    return {}['key']\n", 5, "KeyError: 'key'"),
    "value": (START + "    return int('x')\n", 5, "invalid literal"),
    "below": (START + "    return ConfigDict({1: 2}).x\n", 5, "AttributeError"),
    "exit": ("import sys\n\nsys.exit()\n", 3, "SystemExit"),
    "missing import": ("import no_such_package\n", 1, "no_such_package"),
    "binary": ("\x00\x01", 1, "null bytes"),
    "bytes": ("def get_config():\n    return b'abc'\n", 0, "returns a bytes"),
    "dict": ("def get_config():\n    return {'seed': 0}\n", 0, "returns a dict"),
    "empty": ("", 0, "no get_config()"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_recipe_that_fails_is_named_by_file_and_line(tmp_path, kind):
    text, line, named = BROKEN[kind]
    path = tmp_path / "recipe.py"
    path.write_text(text)
    with pytest.raises(UserError) as error:
        recipe_files.load(str(path))
    said = str(error.value)
    assert said.startswith(f"{path}" + f", line {line}: " * (line > 0))
    assert named in said


def test_a_preset_that_is_not_there_is_a_mistake_of_the_command_line():
    for recipe in recipe_files.list_files():
        path = recipe_files.ROOT / recipe
        if recipe_files.list_presets(path) == [""]:
            continue
        with pytest.raises(UsageError, match=f"^--config={recipe}:nope: there is no preset 'nope'"):
            recipe_files.load(f"{path}:nope")


def test_recipes_are_found_by_what_any_of_their_presets_has():
    has_first_phase = recipe_files.find_recipes(lambda config: "first_phase" in config)
    assert "bert" in has_first_phase
    assert not [name for name in has_first_phase if name.startswith("finetune/")]
    roberta = recipe_files.find_recipes(lambda x: x.get("batches", {}).get("B") == 8192)
    assert roberta == ["bert:roberta", "xlnet:large"]
    assert "finetune/table" in recipe_files.find_recipes(lambda config: "epochs" in config)
