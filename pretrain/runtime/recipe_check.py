"""Looks at a recipe before any work: its keys, the names of its parts, its numbers."""

import difflib
import functools
import re
from collections.abc import Iterable

from ml_collections import ConfigDict

from pretrain.runtime import recipe_files, recipe_ranges, usual_names
from pretrain.runtime.errors import UsageError, UserError

# Commands by the key that only their recipes have, the first that fits; no other has the last.
MARKS = {
    "finetune.main": "epochs",
    "pretrain.main": "objective.name",
    "pretrain.gradients": "cells",
    "pretrain.evaluate": "corpus.source",
}


def check_recipe(config: ConfigDict, keys: Iterable[str], named: str) -> None:
    """Looks at a recipe before any work.

    Args:
        keys: sections or dotted names that it is to have.
        named: the recipe, as errors name it.

    Raises:
        UsageError: it is a recipe of another command.
        UserError: it lacks a key, a number is out of range, or a part's name is none.
    """
    keys = list(keys)
    there = dict(recipe_files.iter_leaves(config))
    # The dot at the end: "optim" is in "optim.lr", and not in "optimizer".
    if missing := [key for key in keys if not any(f"{x}.".startswith(f"{key}.") for x in there)]:
        path = recipe_files.shorten(named.partition(":")[0])
        if command := _find_command(there, keys):
            raise UsageError(f"{path} is a recipe of python -m {command}")
        raise UserError(f"{path} has no {', '.join(missing)}: it is no recipe for this command")
    for key, name in there.items():
        # Such a name is imported, so a path is refused here, with what a name is.
        if (
            key.endswith(".name")
            and name is not None
            and not re.fullmatch(r"[A-Za-z]\w*(\.\w+)*", str(name))
        ):
            raise UserError(
                f"{key}={name!r}: a name is a file's, as 'transformer', or a module's, "
                "as 'my_models.rwkv'"
            )
    recipe_ranges.check_config(config)


def _find_command(there: Iterable[str], wanted: Iterable[str]) -> str:
    """Returns the command that a recipe with such keys is of; "": the one that wants these."""
    for command, mark in MARKS.items():
        if any(f"{key}.".startswith(f"{mark}.") for key in there):
            return "" if mark in wanted else command
    return ""


def find_keys(config: ConfigDict | None, name: str) -> list[str]:
    """Lists the keys of a recipe that are called so here or elsewhere; None: of most recipes."""
    there = dict(recipe_files.iter_leaves(config)) if config else usual_names.USUAL_NAMES
    known = usual_names.find_keys(name, there.__contains__)
    return (known or [key for key in there if name in (key, key.rpartition(".")[2])])[:3]


def translate_key(config: ConfigDict, key: str) -> str:
    """Returns our dotted name of a key that may be called as elsewhere, or the name itself."""
    return usual_names.translate(key, dict(recipe_files.iter_leaves(config)).__contains__) or key


def check_key(config: ConfigDict, key: str) -> None:
    """Raises a UsageError if a recipe lacks this dotted key, naming the nearest one."""
    section, parts = config, key.split(".")
    for number, name in enumerate(parts):
        above = ".".join(parts[:number])
        if not isinstance(section, ConfigDict):
            raise UsageError(f"--config.{key}: {above} is a value, not a section")
        if name not in section:
            has = f"{above or 'the recipe'} has {', '.join(section) or 'none'}"
            meant = _describe_meant(config, parts, number)
            raise UsageError(f"--config.{key}: there is no such key{meant} {has}")
        section = section[name]


def _describe_meant(config: ConfigDict, parts: list[str], number: int) -> str:
    """Says which key could be meant by a dotted name whose part of this number is none."""
    there = dict(recipe_files.iter_leaves(config))
    # A section of another name has keys that it does not name.
    for name in (".".join(parts), *parts[number:][:1] * (number == len(parts) - 1)):
        if known := usual_names.find_keys(name, there.__contains__):
            return f", here it is called {' or '.join(known)};"
    section = functools.reduce(lambda values, name: values[name], parts[:number], config)
    alike = difflib.get_close_matches(parts[number], list(section), 3)
    keys = [[*parts[:number], name, *parts[number + 1 :]] for name in alike]
    # Of alike sections the one that has the rest.
    if keys := [key for key in keys if has_key(config, key)] or keys:
        return f", did you mean {'.'.join(keys[0])}?"
    # Before keys elsewhere: an optim.l2 is rather another recipe's than a task.encoder.l2.
    if others := _find_recipes_like(config, parts):
        return f"; recipes with this key: {', '.join(others[:6])}{', ...' * (len(others) > 6)};"
    elsewhere = [key for key in there if key.rpartition(".")[2] == parts[-1]]
    return f", did you mean {' or '.join(elsewhere[:3])}?" if elsewhere else ";"


def _find_recipes_like(config: ConfigDict, parts: Iterable[str]) -> list[str]:
    """Lists the recipes that have a key: those of the same command, or else all."""
    of_finetuning = "epochs" in config
    recipes = recipe_files.find_recipes(lambda other: has_key(other, parts))
    alike = [name for name in recipes if name.startswith("finetune/") == of_finetuning]
    return alike or recipes


def has_key(config: ConfigDict, parts: Iterable[str]) -> bool:
    """Checks whether a recipe has the key, or the section, of these parts."""
    values = config
    for name in parts:
        if not isinstance(values, ConfigDict) or name not in values:
            return False
        values = values[name]
    return True
