"""The one kind of error that is the user's to mend: mains print it as a line, not a traceback."""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from modules import plugins
from pretrain.runtime.addresses import without_credentials

Result = TypeVar("Result")


class UserError(ValueError):
    """Something the person at the keyboard can put right; the message says what and where.

    The message is kept without the credentials of the addresses in it.

    Attributes:
        code: what the process ends with.
    """

    code = 1

    def __init__(self, message: str):
        super().__init__(without_credentials(message))


class UsageError(UserError):
    """A command line that cannot be read as it stands."""

    code = 2


def check_fields(name: str, function: Callable[..., Any], fields: Mapping[str, Any]) -> None:
    """Checks the keys of a recipe's section against the function that they are for.

    Raises:
        UserError: a key is missing, or is none of the function's; names the section.
    """
    try:
        inspect.signature(function).bind(**fields)
    except TypeError as error:
        known = ", ".join(inspect.signature(function).parameters)
        raise UserError(f"{name}: {error}; there are {known}") from error


def call_section(name: str, function: Callable[..., Result], fields: Mapping[str, Any]) -> Result:
    """Calls a function with a recipe's section, whose keys and names are checked.

    Any other error of the work inside stays what it is.

    Raises:
        UserError: a key is none of the function's, or no file has a name in the section.
    """
    check_fields(name, function, fields)
    try:
        return function(**fields)
    except plugins.UnknownNameError as error:
        raise UserError(f"{name}.{error}") from error


@contextlib.contextmanager
def section(name: str) -> Iterator[None]:
    """Turns a wrong key, name or value of a recipe's section into the user's error.

    For the construction of what is small; work that takes time has `call_section`.

    Raises:
        UserError: names the section, beside what was wrong.
    """
    try:
        yield
    except UserError:
        raise
    except TypeError as error:
        if not re.search(r"keyword argument|__init__\(\) missing", str(error)):
            raise
        raise UserError(f"{name}: {error}") from error
    except ValueError as error:
        raise UserError(f"{name}.{error}") from error
