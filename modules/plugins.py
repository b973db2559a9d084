"""Loads the file that a recipe names: one of a folder here, or a module of the reader's own."""

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any


class FieldError(ValueError):
    """A field that its owner does not have, needs, or takes with another value."""


class UnfitFieldsError(FieldError):
    """Fields that a function or class does not have, or needs and is not given.

    Attributes:
        owner: the function or class.
        unknown: the fields that it does not have.
    """

    def __init__(self, message: str, owner: Callable[..., Any], unknown: Sequence[str]):
        super().__init__(message)
        self.owner, self.unknown = owner, unknown


class UnknownNameError(FieldError):
    """A name that no file has; the message lists those that there are."""


def load(folder: str, name: str, content: str) -> ModuleType:
    """Imports the file of a package, or the module of a dotted name from Python's path.

    `load("modules.backbones", "transformer", "Backbone")` imports modules/backbones/transformer.py;
    `load("modules.backbones", "my_models.rwkv", "Backbone")` imports my_models/rwkv.py from
    wherever Python finds it.

    Args:
        folder: the package whose files follow one contract; "": all are the reader's own.
        name: what the recipe says.
        content: the class or function that such a file must define.

    Raises:
        UnknownNameError: there is no such file, or it does not define `content`.
    """
    path = name if "." in name or not folder else f"{folder}.{name}"
    module = _import(path)
    if module is None or not _defines(module, content):
        known = f"{folder} has {', '.join(names(folder, content))}; " if folder else ""
        rule = "a name with a dot" if folder else "it"
        raise UnknownNameError(
            f"name={name!r}: there is no {path} with a {content}; {known}{rule} is a module of "
            "your own on PYTHONPATH"
        )
    return module


def names(folder: str, content: str) -> list[str]:
    """Lists the files of a package that define `content`."""
    files = pkgutil.iter_modules(importlib.import_module(folder).__path__)

    every = [file.name for file in files if not file.ispkg]
    return [x for x in every if _defines(importlib.import_module(f"{folder}.{x}"), content)]


def select_fields(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Selects the values that a dataclass, as every Linen module is, has fields for."""
    known = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in known}


def shared_fields(module: Any, kind: type) -> dict[str, Any]:
    """Returns the fields of a Linen module that a class of its parts has, too."""
    values = {field.name: getattr(module, field.name) for field in dataclasses.fields(module)}
    # A parent and a name say where the module stands, not what it is.
    return select_fields(kind, {k: x for k, x in values.items() if k not in ("parent", "name")})


def check_fields(function: Callable[..., Any], fields: Mapping[str, Any], *given: Any) -> None:
    """Checks the names of fields against the function or class that they are for.

    Args:
        given: arguments that are passed by position, before the fields.

    Raises:
        FieldError: a field is missing, or is none of the function's.
    """
    # By binding and not by calling: an error inside the function is no error of the fields.
    signature = inspect.signature(function)
    try:
        signature.bind(*given, **fields)
    except TypeError as error:
        known = list_fields(function)[len(given) :]
        unknown = [] if takes_any(function) else [name for name in fields if name not in known]
        message = f"{error}; there are {', '.join(known)}"
        raise UnfitFieldsError(message, function, unknown) from error


def list_fields(function: Callable[..., Any]) -> list[str]:
    """Lists the arguments of a function or class that a recipe may name."""
    known = list(inspect.signature(function).parameters)
    if "parent" in known:  # Linen adds two fields to every module
        known = [name for name in known if name not in ("parent", "name")]
    return known


def takes_any(function: Callable[..., Any]) -> bool:
    """Checks whether a function takes arguments of any name."""
    kinds = [x.kind for x in inspect.signature(function).parameters.values()]
    return inspect.Parameter.VAR_KEYWORD in kinds


def list_owners(folder: str, content: str, fields: Iterable[str]) -> list[str]:
    """Lists the files of a package whose `content` has all these fields."""
    contents = {x: getattr(load(folder, x, content), content) for x in names(folder, content)}
    return [name for name, kind in contents.items() if {*fields} <= {*list_fields(kind)}]


def construct(kind: Callable[..., Any], /, *given: Any, **fields: Any) -> Any:
    """Constructs a dataclass, as every Linen module is, of a recipe's fields.

    Raises:
        FieldError: see `check_fields`, or the class's own `__post_init__` refuses a value.
    """
    check_fields(kind, fields, *given)
    try:
        return kind(*given, **fields)
    except ValueError as error:
        raise FieldError(str(error)) from error


def _defines(module: ModuleType, content: str) -> bool:
    # A name that a file imports is another file's.
    value = getattr(module, content, None)
    if isinstance(value, type | FunctionType):
        return value.__module__ == module.__name__
    return value is not None


def _import(path: str) -> ModuleType | None:
    if not all(part.isidentifier() for part in path.split(".")):
        return None
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:  # of this module or a package above it, or of what it uses
        if error.name and f"{path}.".startswith(f"{error.name}."):
            return None
        raise
