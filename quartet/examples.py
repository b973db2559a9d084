"""Makes examples of a task of texts, tuples of texts, rows of a table or frame, or dicts."""

from collections.abc import Mapping, Sequence
from typing import Any

from finetune.datasets import Example
from finetune.datasets.files import check_count, check_text
from finetune.tasks import TaskData, name_fields
from pretrain.runtime.errors import UserError
from quartet.arguments import advise_gap, check_encoding, describe, is_frame, is_row, list_items

# By kind of task, labels are asked for that an example to predict has none of.
UNLABELLED: Example = dict(label=None, labels=None, answers=[], impossible=False, relevance=None)
ONE_TEXT = ("question", "context", "query", "scene")  # other fields hold several


def list_examples(examples: Any, data: TaskData, columns: Sequence[str] = ()) -> list[Example]:
    """Lists the examples that `predict` was given.

    Args:
        examples: a text, a dict, or several; of several a tuple of texts is one, too; or a frame
            of pandas, a row of which is as a dict.
        data: of the task, which says what an example is.
        columns: of the texts in the table that the run was trained on; (): it was none.

    Raises:
        UserError: one is no example of this task; it is named by its number from 0.
    """
    if is_frame(examples):
        examples = examples.to_dict("records")  # iterated, it would give its columns' names
    elif is_row(examples) and columns and {*columns} <= {*examples.keys()}:
        raise UserError("predict(...) was given a row of a frame: give it as row.to_dict()")
    rows = list_items("predict(...)", examples, "examples: a text, a dict, or a list of these")
    return [make_example(row, data, columns, number) for number, row in enumerate(rows)]


def make_example(
    example: Any, data: TaskData, columns: Sequence[str] = (), number: int = 0
) -> Example:
    """Makes an example of a task, without labels, which nothing that is predicted depends on.

    Raises:
        UserError: it is none.
    """
    where = f"example {number}"
    if is_row(example):
        example = example.to_dict()
    if isinstance(example, Mapping):
        fields = _pick_fields(example, data, columns, where)
    else:
        fields = _name_texts(example, data, where)
    for name in name_fields(data) & fields.keys():
        fields[name] = check_field(fields[name], name, where)
    check_count(len(fields.get("texts", columns)), columns, where)
    return {"id": str(number), **fields, **UNLABELLED, "where": where}


def check_field(value: Any, name: str, where: str) -> Any:
    """Returns the value of an example's field; of a text where several are meant, a list of it.

    Raises:
        UserError: it is of another kind, or empty.
    """
    if name == "features":  # numbers, which the task looks at
        return value
    if name in ONE_TEXT or isinstance(value, str):
        text = check_text(value, repr(name), where)
        if name in ONE_TEXT:
            return text
        return text.split() if name == "words" else [text]
    if isinstance(value, Mapping) or not hasattr(value, "__iter__") or not (value := list(value)):
        raise UserError(f"{where}: {name!r} should be a list of texts, and is {describe(value)}")
    return [check_text(text, f"one of {name!r}", where) for text in value]


def _pick_fields(
    example: Mapping[Any, Any], data: TaskData, columns: Sequence[str], where: str
) -> dict[str, Any]:
    """Picks what a dict says of an example, by the fields of the task or by a table's columns."""
    needed = name_fields(data)
    if columns and "texts" not in example and {*columns} <= example.keys():
        return {"texts": [_check_cell(example[x], x, where) for x in columns]}
    if missing := sorted(needed - example.keys()):
        has = ", ".join(map(repr, example)) or "nothing"
        table = f", nor the table's {', '.join(map(repr, columns))}" if columns else ""
        raise UserError(f"{where} has no {', '.join(map(repr, missing))}{table}, but {has:.200}")
    return dict(example)


def _check_cell(cell: Any, column: str, where: str) -> str:
    """Returns the text of a table's cell; the UserError of another says what to do about it."""
    if advice := advise_gap(cell):
        raise UserError(f"{where}: {column!r} is empty, {describe(cell)}{advice}")
    return check_text(cell, repr(column), where)


def _name_texts(example: Any, data: TaskData, where: str) -> dict[str, Any]:
    """Names what a text or a tuple of texts is to a task."""
    if not (field := data.plain_field):
        fields = ", ".join(map(repr, sorted(name_fields(data)))) or "fields of its own"
        raise UserError(f"{where}: an example of this task is a dict with {fields}")
    is_text = isinstance(example, str)
    if not is_text and not isinstance(example, list | tuple):
        raise UserError(
            f"{where} is {describe(example)}: it is to be a text, a tuple of texts, or a dict"
        )
    if is_text:
        check_encoding(where, example)
        check_text(example, "it", where)
        return {field: example.split() if field == "words" else [example.strip()]}
    return {field: [text.strip() if isinstance(text, str) else text for text in example]}
