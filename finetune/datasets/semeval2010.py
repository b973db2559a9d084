"""Reads SemEval-2010 task 8: the relation between the two marked words of a sentence."""

import re
from collections.abc import Sequence
from typing import Any

from finetune.datasets import Example, Read, files
from pretrain.runtime.errors import UserError

KINDS = (
    "Cause-Effect",
    "Component-Whole",
    "Content-Container",
    "Entity-Destination",
    "Entity-Origin",
    "Instrument-Agency",
    "Member-Collection",
    "Message-Topic",
    "Product-Producer",
)
RELATIONS = (*(f"{kind}({way})" for kind in KINDS for way in ("e1,e2", "e2,e1")), "Other")
# The quotes of the official files are missing in some copies.
SENTENCE = re.compile(r'(\d+)\t"?(.*?)"?\s*')
MARKS = ("<e1>", "</e1>", "<e2>", "</e2>")


def read(
    path: str,
    *,
    labels: Sequence[str] = RELATIONS,
    marks: Sequence[str] = MARKS,
    encoding: str = "utf-8",
) -> Read:
    """Reads sentences with their marks and without the quotes; labels have their direction.

    A record is a line of number, tab and sentence, a line with the relation, and a line "Comment:",
    which is ignored.  A file without any relation has labels None.

    Args:
        marks: replacements of <e1>, </e1>, <e2>, </e2>, blanks included.

    Raises:
        UserError: the file is malformed (names the file and the line), or marks are not four.
    """
    if len(marks) != len(MARKS):
        raise UserError(f"marks: name four, for {' '.join(MARKS)}, and not {len(marks)}")
    names = files.label_names(labels)
    examples: list[Example] = []
    for number, line in files.lines(path, encoding):
        where, line = f"{path}, line {number}", line.strip()
        if record := SENTENCE.fullmatch(line):
            examples.append(_sentence(record, marks, where))
        elif line and not line.startswith("Comment:"):
            _set_relation(examples, files.rename_label(line, names, where), where)
    # The test file was first published without any.
    _check_all_or_none(examples)  # else None would be a label among others
    return Read(examples)


def _sentence(record: re.Match[str], marks: Sequence[str], where: str) -> Example:
    sentence = files.check_text(record[2], "the sentence", where)
    places = [sentence.find(mark) for mark in MARKS]
    if min(places) < 0 or any(sentence.count(mark) > 1 for mark in MARKS):
        raise UserError(f"{where}: the sentence should have {' '.join(MARKS)} once each")
    # e2 may well stand before e1 in the sentence.
    if places[0] > places[1] or places[2] > places[3]:
        raise UserError(f"{where}: a mark closes before it opens")
    # Replaced only now: the checks above are of the marks in the file.
    for mark, replacement in zip(MARKS, marks, strict=True):
        sentence = sentence.replace(mark, replacement)
    # The official scorer expects the number beside each answer.
    return {"id": record[1], "texts": [sentence], "label": None, "where": where}


def _set_relation(examples: list[Example], label: str, where: str) -> None:
    if not examples or examples[-1]["label"] is not None:
        raise UserError(f"{where}: the relation {label!r} follows no sentence")
    examples[-1]["label"] = label


def _check_all_or_none(examples: list[dict[str, Any]]) -> None:
    without = [example for example in examples if example["label"] is None]
    if without and len(without) < len(examples):
        raise UserError(f"{without[0]['where']}: the sentence has no relation, and others have")
