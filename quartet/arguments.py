"""Checks what is handed to a run's methods, before any work, in words for whoever calls them."""

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np

from pretrain.runtime.errors import UserError

Method = TypeVar("Method", bound=Callable[..., Any])

# By annotation: the types of values, and the word for them.
KINDS: dict[Any, tuple[Any, str]] = {
    bool: (bool | np.bool_, "True or False"),
    int: (Integral, "a whole number"),
    float: (Real, "a number"),
    str: (str, "text"),
}


def describe(value: Any) -> str:
    """Returns a value in brief, and its type."""
    return f"{reprlib.repr(value)} ({type(value).__name__})"


def advise_gap(value: Any) -> str:
    """Returns what to do about a cell that pandas has nothing in, behind a message; "": it has."""
    # NaN and NaT alone are not equal to themselves; to compare pandas' NA gives no bool.
    is_gap = type(value).__name__ in ("NoneType", "NAType", "NaTType") or (
        isinstance(value, Real) and value != value
    )
    return "; rows with empty cells are left out by .dropna()" if is_gap else ""


def check_options(method: Method) -> Method:
    """Wraps a method so that what it takes by keyword is checked against the annotations.

    Raises:
        UserError: from the method, a value is of another kind.
    """
    signature = inspect.signature(method)
    parameters = [x for x in signature.parameters.values() if x.kind == x.KEYWORD_ONLY]
    kinds = {x.name: x.annotation for x in parameters if x.annotation in KINDS}

    @functools.wraps(method)
    def call(*given: Any, **options: Any) -> Any:
        for name in options.keys() & kinds.keys():
            check_kind(f"{method.__name__}({name}=...)", options[name], kinds[name])
        return method(*given, **options)

    return call  # type: ignore[return-value]


def check_kind(where: str, value: Any, kind: type) -> None:
    """Raises a UserError if a value is not of one of `KINDS`."""
    types, words = KINDS[kind]
    # To Python a bool is a number.
    if not isinstance(value, types) or (kind in (int, float) and isinstance(value, bool)):
        raise UserError(f"{where} is to be {words}, and is {describe(value)}")


def list_texts(where: str, texts: Any) -> list[str]:
    """Lists what is a text or several.

    Args:
        where: names the call in errors, as "embed(...)".

    Raises:
        UserError: it is neither, or holds half a character.
    """
    if is_frame(texts):
        names = ", ".join(map(str, texts.columns))
        raise UserError(
            f"{where} takes a text or a list of texts, and was given a frame: name the column, as "
            f"frame[{str(texts.columns[0]) if len(texts.columns) else 'text'!r}]; it has "
            f"{names or 'none'}"
        )
    rows = list_items(where, texts, "a text or a list of texts")
    for number, text in enumerate(rows):
        place = "it" if isinstance(texts, str) else f"item {number}"
        if not isinstance(text, str):
            raise UserError(
                f"{where} takes a text or a list of texts, and {place} is {describe(text)}"
                f"{advise_gap(text)}"
            )
        check_encoding(f"{where}: {place}", text)
    return rows


def is_frame(value: Any) -> bool:
    """Returns whether a value is a frame as of pandas, which iterates over its columns' names."""
    return hasattr(value, "columns") and hasattr(value, "to_dict")


def is_row(value: Any) -> bool:
    """Returns whether a value is a series as of pandas, which a row of a frame is."""
    return hasattr(value, "keys") and hasattr(value, "to_dict") and not is_frame(value)


def list_items(where: str, items: Any, wanted: str) -> list[Any]:
    """Lists what is one text or dict, or an iterable of items.

    Raises:
        UserError: it is neither; the message says what is wanted.
    """
    if isinstance(items, str | Mapping):
        return [items]
    try:
        if not isinstance(items, bytes | bytearray) and isinstance(items, Iterable):
            return list(items)
    except TypeError:  # an array of no dimensions
        pass
    raise UserError(f"{where} takes {wanted}, and was given {describe(items)}")


def check_encoding(where: str, text: str) -> None:
    """Raises a UserError if a text holds half of a surrogate pair, which UTF-8 has no bytes for."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where} is no text from character {error.start} on") from error
