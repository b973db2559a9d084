"""Calls constructors with the sections of a recipe, whose mistakes become lines."""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from modules import plugins
from pretrain.runtime.errors import UserError

Result = TypeVar("Result")


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
        joint = "." if re.match(r"\w+=", str(error)) else ": "
        raise UserError(f"{name}{joint}{error}") from error
