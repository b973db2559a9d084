"""Reads tagged words: a word and its columns per line, sentences between blank lines."""

import re
from collections.abc import Mapping, Sequence

from finetune.datasets import Example, Read, files
from finetune.datasets.files import Skipped
from pretrain.runtime.errors import UserError

DOCUMENT = "-DOCSTART-"


def read(
    path: str,
    *,
    columns: Sequence[int] = (0, -1),
    labels: Mapping[str, str] | Sequence[str] | None = None,
    comment: str = "",
    encoding: str = "utf-8",
) -> Read:
    """Reads sentences of words and labels, as of CoNLL-2003 and WNUT-17.

    Args:
        path: columns are separated by blanks or tabs, and all lines have as many.
        columns: those of the word and of its label, from 0, or from the end by -1.  Without the
            second the labels are None.
        labels: the permitted labels, or {label in the file: its new name}.
        comment: start of lines to leave out and count; a "#" may well be a word.

    Raises:
        UserError: the file is malformed; names the file and the line.
    """
    names, skipped, width = files.label_names(labels), Skipped(), 0
    sentences: list[Example] = []
    sentence: Example | None = None
    for number, line in files.lines(path, encoding):
        where = f"{path}, line {number}"
        other = _other_than_word(line, comment)
        if other or not line.strip(" \t"):
            # A comment may stand within a sentence; all else ends it.
            sentence = sentence if other == "comments" else None
            if other:
                skipped.add(other, where)
            continue
        # Not split(): a word may be a no-break space.
        cells = re.split("[ \t]+", line.strip(" \t"))
        width = width or len(cells)  # of the first line
        word, *label = _pick_cells(cells, width, columns, where)
        if sentence is None:
            sentence = {"words": [], "labels": [] if label else None, "where": where}
            sentences.append(sentence)
        sentence["words"].append(files.check_text(word, "the word", where, empty=True))
        for name in label:  # none, or one
            sentence["labels"].append(files.rename_label(name, names, where))
    return Read(sentences, skipped.notes())


def _other_than_word(line: str, comment: str) -> str:
    """Returns what a line is left out as; "" for a word or the end of a sentence."""
    if line.startswith(DOCUMENT):
        return f"{DOCUMENT} lines"
    return "comments" if comment and line.startswith(comment) else ""


def _pick_cells(cells: list[str], width: int, columns: Sequence[int], where: str) -> list[str]:
    if len(cells) != width:
        raise UserError(f"{where}: {len(cells)} columns, and there should be {width}")
    if not all(-width <= column < width for column in columns):
        raise UserError(f"{where}: {width} columns, too few for columns={tuple(columns)}")
    # Column -1 of a file of one column is the word itself.
    if len({column % width for column in columns}) < len(columns):
        raise UserError(f"{where}: word and label in one column: the file may have no labels")
    return [cells[column] for column in columns]
