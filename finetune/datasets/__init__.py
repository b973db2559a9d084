"""Reads files and TFDS datasets as examples: plain dicts, whatever their source.

A format is a module here, or the reader's own by a dotted name, with

    read(path, **fields) -> Read

whose docstring describes the file and the fields:

    table        TSV, CSV, JSON lines and "label text" lines
    similarity   two texts and a score: STS 2012 to 2016, STS-B, SICK-R, told from the file
    glue         GLUE, its own files or TFDS's: columns by task and split
    sentences    the texts of several files, each by itself
    conll        a word and its label per line, sentences between blank lines
    intents      a sentence per line, its words' tags and its class
    tagged_texts   texts and their class, with tags of the words of each
    squad        questions about a paragraph, answers by character offset
    race, multiple_choice   a question and its choices
    ranking      a query and its candidates
    clicks       what was shown of a search, and what was clicked
    semeval2010  a relation between two marked words
    trees        a tree per line with a label at every node
    tfds         a prepared TFDS dataset
    sotu_author  a task of the default corpus, which needs nothing downloaded

An example has, by kind of task,

    classify, regress   "texts": [str, ...], "label": str | float | None
    tag                 "words": [str, ...], "labels": [str, ...] | None
    joint               what each of its parts has, as all of the two above; of several texts
                        "words" and "labels" are those of all, and "counts" the words of each
    span                "id", "question", "context", "answers": [{"text", "start"}], "impossible"
    choice              "texts": [str, ...], "choices": [str, ...], "label": int | None
    rank                "query", "candidates": [str, ...], "relevance": [float, ...] | None
    scenes              besides, "features": [[float, ...], ...] of the candidates, "scene": str,
                        and "history": [str, ...]

Each has "where", its place for error messages, and "id" where the file has one.
"""

import dataclasses
from typing import Any

from modules import plugins
from pretrain.runtime.errors import UserError

Example = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Read:
    """Examples in the order of the file, and notes on what was left out on purpose."""

    examples: list[Example]
    notes: list[str] = dataclasses.field(default_factory=list)


def read(format: str, path: str, **fields: Any) -> Read:
    """Reads the examples of a file or folder.

    Args:
        fields: those of the format's own `read`.

    Raises:
        plugins.FieldError: the format has no such field.
        UserError: there is no such format, the file is malformed (the message begins with the file
            and the line), or it holds no examples.
    """
    read_file = file_format(format).read
    plugins.check_fields(read_file, fields, path)
    result = read_file(path, **fields)
    if not result.examples:
        # The notes tell why, as when every row was skipped.
        raise UserError("; ".join([f"{path} holds no examples", *result.notes]))
    return result


def file_format(name: str) -> Any:
    """Imports the format of this name; UserError if no file of this folder has it."""
    try:
        return plugins.load(__name__, name, "read")
    except plugins.UnknownNameError as error:
        raise UserError(f"format.{error}") from error


def has_labels(example: dict) -> bool:
    """Returns whether the label, tags, answers or relevance of an example are known."""
    names = ("label", "labels", "answers", "relevance")
    return bool(
        example.get("impossible") or any(example.get(name) not in (None, []) for name in names)
    )
