"""Files and TFDS datasets become examples: plain dicts, the same whatever they came from.

A format is a module here with

    read(path, **fields) -> Read

and its docstring says what the file is and what the fields are:

    table        TSV, CSV, JSON lines and "label text" lines
    glue         GLUE, its own files or TFDS's: columns by task and split
    conll        a word and its label per line, sentences between blank lines
    squad        questions about a paragraph, answers by character offset
    race, multiple_choice   a question and its choices
    ranking      a query and its candidates
    semeval2010  a relation between two marked words
    tfds         a prepared TFDS dataset
    sotu_author  a task of the default corpus, which needs nothing downloaded

An example has, by kind of task,

    classify, regress   "texts": [str, ...], "label": str | float | None
    tag                 "words": [str, ...], "labels": [str, ...] | None
    span                "id", "question", "context", "answers": [{"text", "start"}], "impossible"
    choice              "texts": [str, ...], "choices": [str, ...], "label": int | None
    rank                "query", "candidates": [str, ...], "relevance": [float, ...] | None

and each has "where", its place for error messages, and "id" where the file has one.
"""

import dataclasses
from typing import Any

from modules import plugins
from pretrain.runtime.errors import UserError

Example = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Read:
    """Examples in the order of the file, and in words what was left out of it on purpose."""

    examples: list[Example]
    notes: list[str] = dataclasses.field(default_factory=list)


def read(format: str, path: str, **fields: Any) -> Read:
    """The examples of a file or folder; `fields` are those of the format's own `read`.

    Raises:
        UserError: there is no such format, or something in the file is not as it should be: the
            message begins with the file and the line. Also when there are no examples in it.
    """
    found = file_format(format).read(path, **fields)
    if not found.examples:
        raise UserError("; ".join([f"{path} holds no examples", *found.notes]))
    return found


def file_format(name: str) -> Any:
    """Imports the format of this name; UserError if no file of this folder has it."""
    try:
        return plugins.load(__name__, name, "read")
    except plugins.UnknownNameError as error:
        raise UserError(f"format.{error}") from error
