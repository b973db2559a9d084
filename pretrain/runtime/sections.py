"""Calls constructors with the sections of a recipe, whose mistakes become lines."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from modules import plugins
from pretrain.runtime import recipe_files
from pretrain.runtime.errors import UserError

Result = TypeVar("Result")
# By section whose name may be changed alone: where the parts of these names are.
PARTS = {
    "model": ("modules.backbones", "Backbone"),
    "objective": ("pretrain.objectives", "Objective"),
    "batches": ("pretrain.data.batches", "BatchLayout"),
}


def call_section(
    name: str, function: Callable[..., Result], fields: Mapping[str, Any], /, **given: Any
) -> Result:
    """Calls a function with a recipe's section, whose keys are checked before.

    Args:
        given: further arguments of the function, which the section cannot set.

    Raises:
        UserError: a key is none of the function's, or its value none of a constructor's.
    """
    with name_section(name):
        if both := fields.keys() & given.keys():
            raise plugins.FieldError(f"{min(both)!r} is not set in this section")
        # Before the call: a TypeError from inside would blame the program, not the recipe.
        plugins.check_fields(function, {**fields, **given})
        return function(**fields, **given)


@contextlib.contextmanager
def name_section(name: str) -> Iterator[None]:
    """Adds the name of a recipe's section to what a constructor says of its fields.

    Raises:
        UserError: in place of a `plugins.FieldError`; other errors pass.
    """
    try:
        yield
    except plugins.FieldError as error:
        if isinstance(error, plugins.UnfitFieldsError) and (other := _explain_change(name, error)):
            raise UserError(other) from error
        joint = "." if re.match(r"\w+=", str(error)) else ": "
        raise UserError(f"{name}{joint}{error}") from error


def _explain_change(section: str, error: plugins.UnfitFieldsError) -> str:
    """Says what to do where a recipe names another part than its fields are of; "": it does not."""
    folder, content = PARTS.get(section, ("", ""))
    if not folder or not error.unknown:
        return ""
    owners = plugins.list_owners(folder, content, error.unknown)
    path = error.owner.__module__
    name = path.removeprefix(f"{folder}.")
    if not owners or name in owners:
        return ""
    known = ", ".join(plugins.list_fields(error.owner))
    recipes = recipe_files.find_recipes(lambda config: find_name(config, section) == name)
    begin = f"begin with a recipe of {name!r}, as --config={' or '.join(recipes[:4])}, or write one"
    return (
        f"{section}: {', '.join(error.unknown)} of this recipe's {' or '.join(map(repr, owners))} "
        f"do not fit {name!r}, which has {known}; "
        f"{begin if recipes else 'write a recipe'}, as docs/tutorials/own_objective.md shows"
    )


def find_name(config: Mapping[str, Any], section: str) -> str | None:
    """Returns the name of the part that a section of a recipe is of; None: it has none."""
    fields = config.get(section) if "seed" in config else None  # else it trains nothing
    return fields.get("name") if fields else None
