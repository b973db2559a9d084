"""SemEval-2010 task 8: which relation holds between the two marked words of a sentence."""

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
SENTENCE = re.compile(r'(\d+)\t"?(.*?)"?\s*')
MARKS = ("<e1>", "</e1>", "<e2>", "</e2>")


def read(
    path: str,
    *,
    labels: Sequence[str] = RELATIONS,
    marks: Sequence[str] = MARKS,
    encoding: str = "utf-8",
) -> Read:
    """Sentences with their marks and without the quotes; the label has its direction.

    A record is a line of number, tab and sentence, a line with the relation, and a line "Comment:"
    which is passed over; a file without any relation (the test file as first given out) has
    labels None. "id" is the number, which the official scorer wants beside each answer.

    Args:
        marks: what shall stand for <e1>, </e1>, <e2>, </e2>, blanks included.

    Raises:
        UserError: names the file and the line; or there are not four marks.
    """
    if len(marks) != len(MARKS):
        raise UserError(f"marks: name four, for {' '.join(MARKS)}, and not {len(marks)}")
    names = files.known(labels)
    found: list[Example] = []
    for number, line in files.lines(path, encoding):
        where, line = f"{path}, line {number}", line.strip()
        if record := SENTENCE.fullmatch(line):
            found.append(_sentence(record, marks, where))
        elif line and not line.startswith("Comment:"):
            _relate(found, files.labelled(line, names, where), where)
    _check_all_or_none(found)
    return Read(found)


def _sentence(record: re.Match[str], marks: Sequence[str], where: str) -> Example:
    sentence = files.wording(record[2], "the sentence", where)
    places = [sentence.find(mark) for mark in MARKS]
    if min(places) < 0 or any(sentence.count(mark) > 1 for mark in MARKS):
        raise UserError(f"{where}: the sentence should have {' '.join(MARKS)} once each")
    if places[0] > places[1] or places[2] > places[3]:
        raise UserError(f"{where}: a mark closes before it opens")
    for mark, own in zip(MARKS, marks, strict=True):
        sentence = sentence.replace(mark, own)
    return {"id": record[1], "texts": [sentence], "label": None, "where": where}


def _relate(found: list[Example], label: str, where: str) -> None:
    if not found or found[-1]["label"] is not None:
        raise UserError(f"{where}: the relation {label!r} follows no sentence")
    found[-1]["label"] = label


def _check_all_or_none(found: list[dict[str, Any]]) -> None:
    without = [example for example in found if example["label"] is None]
    if without and len(without) < len(found):
        raise UserError(f"{without[0]['where']}: the sentence has no relation, and others have")
