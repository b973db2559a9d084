"""The generated pages of the reference are those that the code gives now."""

import os
import pathlib
import re

import pytest

from docs import build_reference
from tests.support import commands

FOLDER = pathlib.Path(__file__).parents[2] / "docs" / "reference"
STALE = "run `make reference`, and commit what it writes"


@pytest.mark.parametrize("name", ["configuration.md", "python.md"])
def test_a_generated_page_is_as_the_code_gives_it(name):
    assert build_reference.PAGES[name]() == (FOLDER / name).read_text(), STALE


@pytest.fixture(scope="module")
def keys():
    return build_reference.read_keys()[0]


def test_every_section_of_a_recipe_is_in_the_reference(keys):
    assert {key.section for key in keys} == {*build_reference.SECTIONS}


def test_a_key_that_a_page_sets_is_some_recipe_s(keys):
    fields = {key.field for key in keys}
    pages = [page.read_text() for page in (FOLDER.parents[1] / "docs").rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"--config((?:\.\w+)+)=", page)}
    assert {name for name in named if name.rpartition(".")[2] not in fields} == set()


def test_the_page_of_commands_names_every_command():
    page = (FOLDER / "commands.md").read_text()
    headings = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    assert headings == build_reference.list_commands(), STALE


@pytest.mark.slow
def test_the_page_of_commands_is_what_help_prints():
    def help_of(module: str) -> str:
        environment = {**os.environ, **build_reference.WIDTH}
        return commands.run("-m", module, "--help", environment=environment).stdout

    assert build_reference.build_commands(help_of) == (FOLDER / "commands.md").read_text(), STALE


def test_marks_of_a_meaning_are_no_markdown():
    escaped = build_reference.escape("a|b *.txt <glob> `x*|<` [MASK](_raw_)")
    assert escaped == r"a\|b \*.txt \<glob> `x*|<` [MASK\](\_raw\_)"
