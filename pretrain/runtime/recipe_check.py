"""Looks at a recipe before any work: its keys, the names of its parts, its numbers."""

import difflib
import functools
import re
from collections.abc import Iterable

from ml_collections import ConfigDict

from pretrain.runtime import recipe_files, recipe_ranges, usual_names
from pretrain.runtime.errors import UsageError, UserError


def check_recipe(config: ConfigDict, keys: Iterable[str], named: str) -> None:
    """Looks at a recipe before any work.

    Args:
        keys: sections or dotted names that it is to have.
        named: the recipe, as errors name it.

    Raises:
        UserError: it lacks a key, a number is out of range, or a part's name is none.
    """
    there = dict(recipe_files.iter_leaves(config))
    # The dot at the end: "optim" is in "optim.lr", and not in "optimizer".
    if missing := [key for key in keys if not any(f"{x}.".startswith(f"{key}.") for x in there)]:
        raise UserError(f"{named} has no {', '.join(missing)}: it is no recipe for this command")
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
    if known := usual_names.find_keys(parts[number], there.__contains__):
        return f", here it is called {' or '.join(known)};"
    section = functools.reduce(lambda values, name: values[name], parts[:number], config)
    if nearest := difflib.get_close_matches(parts[number], list(section), 1):
        return f", did you mean {'.'.join([*parts[:number], *nearest, *parts[number + 1 :]])}?"
    elsewhere = [key for key in there if key.rpartition(".")[2] == parts[number]]
    return f", did you mean {' or '.join(elsewhere[:3])}?" if elsewhere else ";"
