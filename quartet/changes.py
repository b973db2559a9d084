"""Changes a recipe's values by dotted name, in words for whoever gave them."""

import contextlib
import functools
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from pretrain.runtime.errors import UserError
from pretrain.runtime.recipe_check import check_key, translate_key
from quartet.arguments import KINDS, check_kind, describe
from quartet.wording import explain_to_callers


@explain_to_callers()
def apply_changes(config: ConfigDict, changes: Mapping[str, Any]) -> ConfigDict:
    """Sets values of a recipe by dotted name, and returns it.

    Raises:
        UserError: the recipe has no such key, or the value is of another kind than its own.
    """
    if not isinstance(changes, Mapping):
        raise UserError(f'changes are a dict as {{"optim.lr": 1e-4}}, and not {describe(changes)}')
    for key, value in changes.items():
        if not isinstance(key, str) or not key:
            raise UserError(
                f'changes are by dotted name, as "optim.lr", and one is by {describe(key)}'
            )
        key = translate_key(config, key)
        check_key(config, key)
        _set_value(config, key, value)
    return config


def _set_value(config: ConfigDict, key: str, value: Any) -> None:
    *above, name = key.split(".")
    section = functools.reduce(lambda values, part: values[part], above, config)
    present, kind = section[name], section.get_type(name)
    if isinstance(present, ConfigDict):
        if not isinstance(value, Mapping):
            example = f"{key}.{next(iter(present), '...')}"
            raise UserError(
                f"{key}={value!r:.60}: {key} is a section; change a key of it, as {example!r}"
            )
        apply_changes(config, {f"{key}.{inner}": x for inner, x in value.items()})
        return
    value = _convert(value, present)
    # A table's column may be a number where the recipe has a name.
    is_column = kind is str and isinstance(value, int) and "data" in above
    try:
        if kind in KINDS and not is_column:
            check_kind(key, value, kind)
        with section.ignore_type() if is_column else contextlib.nullcontext():
            section[name] = value
    except (UserError, TypeError, ValueError) as error:
        words = KINDS[kind][1] if kind in KINDS else f"a {kind.__name__}"
        is_whole = kind is int and isinstance(value, float) and value.is_integer()
        meant = int(value) if is_whole else present
        raise UserError(f"{key}={value!r:.60}: it is to be {words}, as {meant!r}") from error


def _convert(value: Any, present: Any) -> Any:
    """Converts a path, a number of NumPy's, and to a tuple of texts a single one."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # As one column, or one tracker.
    if isinstance(present, tuple) and isinstance(value, str):
        return (value,) if all(isinstance(x, str) for x in present) else value
    return value
