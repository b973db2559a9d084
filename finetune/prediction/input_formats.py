"""The format of a file to predict: the recipe's, unless it is said otherwise."""

import json
from typing import Any

from finetune.several import parts
from pretrain.runtime.errors import UserError


def resolve_format(config: Any, format: str, split: str, more: str) -> tuple[str, dict[str, Any]]:
    """Returns the format of the input and its fields: the recipe's where it is that format.

    Args:
        config: the section `data` of the task.

    Raises:
        UserError: the recipe has no such split, or `more` is no JSON object.
    """
    shared, splits, _ = parts.part_data_section(config)
    of_split: dict[str, Any] = {}
    if split:
        if not splits.get(split):
            names = ", ".join(name for name, value in splits.items() if value)
            raise UserError(f"--split={split}: the recipe has {names}")
        # A split that is a path alone has no fields of its own.
        of_split = splits[split] if isinstance(splits[split], dict) else {}
    try:
        changes = json.loads(more)
    except (ValueError, RecursionError) as error:
        raise UserError(f"--fields={more!r} is not JSON: {error}") from error
    if not isinstance(changes, dict):
        raise UserError(f'--fields={more!r} should be an object, as \'{{"label": ""}}\'')
    fields = shared | of_split
    usual = fields.pop("format", "")
    fields.pop("path", None)  # the input takes its place
    # The recipe's fields mean nothing to another format.
    if format in ("", usual):
        format, changes = usual, fields | changes
    # Examples to predict need no labels.
    return format, ({"needs_label": False} if format == "table" else {}) | changes


def list_columns(data: Any) -> tuple[str, ...]:
    """Lists the columns of the texts of a recipe's section `data`, a number as it is spelled.

    Returns:
        (): it is no table, or a file that is parted at its first blank.
    """
    format, fields = resolve_format(data, "", "", "{}")
    is_parted = fields.get("label_first") or fields.get("kind") == "lines"
    columns = fields.get("texts", ()) if format == "table" and not is_parted else ()
    return tuple(map(str, [columns] if isinstance(columns, str | int) else columns))
