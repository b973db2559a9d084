"""Tagged words: one word and its columns per line, sentences between blank lines."""

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
    """Sentences of words and labels, in the form of CoNLL-2003 and WNUT-17.

    Args:
        path: columns are separated by blanks or tabs, and all lines have as many.
        columns: of the word and of its label, counted from 0 or from the end by -1; without the
            second, the labels are None.
        labels: the labels that may be, or {as in the file: as it shall be called}.
        comment: lines that begin so are left out and counted; a "#" may well be a word.

    Raises:
        UserError: names the file and the line.
    """
    names, skipped, width = files.known(labels), Skipped(), 0
    found: list[Example] = []
    sentence: Example | None = None
    for number, line in files.lines(path, encoding):
        where = f"{path}, line {number}"
        aside = _aside(line, comment)
        if aside or not line.strip(" \t"):
            sentence = sentence if aside == "comments" else None
            if aside:
                skipped.add(aside, where)
            continue
        cells = re.split("[ \t]+", line.strip(" \t"))
        width = width or len(cells)
        word, *label = _picked(cells, width, columns, where)
        if sentence is None:
            sentence = {"words": [], "labels": [] if label else None, "where": where}
            found.append(sentence)
        sentence["words"].append(files.wording(word, "the word", where, empty=True))
        for name in label:
            sentence["labels"].append(files.labelled(name, names, where))
    return Read(found, skipped.notes())


def _aside(line: str, comment: str) -> str:
    """What a line is, if it is no word and no end of a sentence."""
    if line.startswith(DOCUMENT):
        return f"{DOCUMENT} lines"
    return "comments" if comment and line.startswith(comment) else ""


def _picked(cells: list[str], width: int, columns: Sequence[int], where: str) -> list[str]:
    if len(cells) != width:
        raise UserError(f"{where}: {len(cells)} columns, and there should be {width}")
    if not all(-width <= column < width for column in columns):
        raise UserError(f"{where}: {width} columns, too few for columns={tuple(columns)}")
    if len({column % width for column in columns}) < len(columns):
        raise UserError(f"{where}: word and label in one column: the file may have no labels")
    return [cells[column] for column in columns]
