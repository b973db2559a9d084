"""Finds recipes by name and by path, and runs them."""

import ast
import difflib
import re
import runpy
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pretrain.runtime.errors import UsageError, UserError

# Batches are made in the Pythons of other libraries, too, which need not have it.
if TYPE_CHECKING:
    from ml_collections import ConfigDict

ROOT = Path(__file__).parents[2]  # of the checkout, or of the installed packages
FOLDERS = ("configs", "configs/finetune")
NO_RECIPES = ("__init__", "common")


def find(named: str, command: str = "") -> str:
    """Finds a recipe's file; a path that is there stays as it is.

    Args:
        named: "bert:base", "finetune/sst2", or "configs/bert.py:base".
        command: the folder of the command; of two recipes of one name, "finetune" has its own.

    Returns:
        `path.py:preset`; with the path as named, if there is none.
    """
    path, colon, preset = named.partition(":")
    places = FOLDERS[::-1] if command == "finetune" else FOLDERS
    # A file of the user's comes first, then a path from where the recipes are, then a name.
    files = [Path(path), ROOT / path, *(ROOT / folder / f"{path}.py" for folder in places)]
    file = next((file for file in files if file.suffix == ".py" and file.is_file()), path)
    return f"{file}{colon}{preset}"


def is_file(named: str) -> bool:
    """Checks whether a word names the file of a recipe, with or without a preset."""
    return Path(find(named).partition(":")[0]).is_file()


def load(named: str) -> "ConfigDict":
    """Runs the recipe `path.py:preset` and returns its config.

    Raises:
        UsageError: there is no such file, or no such preset.
        UserError: it fails, by file and line, or returns something else.
    """
    path, colon, preset = named.partition(":")
    if not Path(path).is_file():
        raise UsageError(f"--config={named}: {_describe_missing(path, f'{colon}{preset}')}")
    try:
        config = runpy.run_path(path)["get_config"](*[preset] if colon else [])
    except (Exception, SystemExit) as error:
        # A recipe refuses its preset in words that stand by themselves, where no line helps.
        if type(error) is ValueError and preset and str(error).startswith("there is no preset"):
            raise UsageError(f"--config={shorten(path)}:{preset}: {error}") from error
        raise UserError(f"{_locate_error(path, error)}: {_describe_error(error)}") from error
    if not hasattr(config, "to_dict"):
        kind = type(config).__name__
        raise UserError(f"{path}: get_config() returns a {kind}, and is to return a ConfigDict")
    return config


def shorten(path: str) -> str:
    """Returns the path of a recipe that comes with the code as from `ROOT`, others as they are."""
    return path.removeprefix(f"{ROOT}/")


def find_recipes(has: Callable[["ConfigDict"], bool]) -> list[str]:
    """Lists the recipes that have something, by their names; a preset if the usual one lacks it."""
    names = []
    for file in list_files():
        path, name = ROOT / file, file.relative_to(FOLDERS[0]).with_suffix("").as_posix()
        # The first is the one that is taken without a preset.
        presets = [
            f":{preset}" if number else "" for number, preset in enumerate(list_presets(path))
        ]
        first = next((x for x in presets if has(load(f"{path}{x}"))), None)
        names += [] if first is None else [f"{name}{first}"]
    return names


def list_files() -> list[Path]:
    """Lists the recipes that come with the code, from `ROOT`."""
    there = sorted(file.relative_to(ROOT) for file in (ROOT / "configs").rglob("*.py"))
    return [file for file in there if file.stem not in NO_RECIPES]


def iter_leaves(config: "ConfigDict", above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every value of a recipe with its dotted name; an empty section is a value."""
    for name, value in config.items():
        if hasattr(value, "to_dict") and value:
            yield from iter_leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def read_title(path: Path) -> str:
    """Reads the first paragraph of a recipe's docstring, as one line."""
    docstring = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    return " ".join(docstring.partition("\n\n")[0].split())


def list_presets(path: Path) -> list[str]:
    """Lists the presets that the docstring of a recipe's `get_config` names; [""]: it has none."""
    text = runpy.run_path(str(path))["get_config"].__doc__ or ""
    return re.findall(r'"([\w.]+)"', text) or [""]


def _describe_missing(path: str, preset: str) -> str:
    recipes, name = list_files(), Path(path).stem
    nearest = difflib.get_close_matches(name, [file.stem for file in recipes], 1)
    alike = [f"{file}{preset}" for file in recipes if file.stem in nearest]
    meant = f"did you mean {' or '.join(alike)}? " if alike else ""
    return (
        f"{meant}recipes are files, configs/*.py and configs/finetune/*.py, or their names, as "
        f"bert:base; there is no file {Path(path).absolute()}"
    )


def _locate_error(path: str, error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename or path}, line {error.lineno or 1}"
    frames = traceback.extract_tb(error.__traceback__)
    # The error may come from a library: the last line of the recipe itself led there.
    lines = [x.lineno for x in frames if x.filename == path]
    return f"{path}, line {lines[-1]}" if lines else path


def _describe_error(error: BaseException) -> str:
    if isinstance(error, KeyError) and error.args == ("get_config",):
        return "it is no recipe, it has no get_config()"
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    text = " ".join(text.split())
    # Its words stand by themselves, where a recipe raises it to refuse something.
    return text if type(error) is ValueError else f"{type(error).__name__}: {text}"
