"""Reads RACE: passages with questions and four choices, one JSON object per .txt file."""

import itertools
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from finetune.datasets import Example, Read, files, multiple_choice
from finetune.datasets.files import check_text, field
from pretrain.runtime.errors import UserError


def read(path: str) -> Read:
    """Reads the questions of all .txt files under a folder, as RACE/train, sorted by path.

    A file has "article", and "questions", "options" and "answers" (letters; missing where they are
    not known) of one length (Lai et al. 2017).  The texts are the article and the question, in
    which a gap is "_".

    Raises:
        UserError: a file is malformed; names the file and the question, counted from 1.
    """
    # RACE itself is split into middle/ and high/; a single file will do, too.
    passages = sorted(Path(path).rglob("*.txt")) or [Path(path)]
    if passages == [Path(path)] and not passages[0].is_file():
        raise UserError(f"{path}: holds no .txt files")
    return Read(list(itertools.chain.from_iterable(map(_iter_questions, passages))))


def _iter_questions(path: Path) -> Iterator[Example]:
    record = files.parse_json(files.text(path), str(path))
    article = check_text(field(record, "article", str, str(path)), "the article", str(path))
    questions = field(record, "questions", list, str(path))
    options = field(record, "options", list, str(path))
    answers = field(record, "answers", list, str(path)) if "answers" in record else None
    # A file whose lists differ would shift every label after the gap.
    if {len(questions), len(options), len(options if answers is None else answers)} != {
        len(questions)
    }:
        raise UserError(f"{path}: questions, options and answers should be as many")
    for number, (question, choices) in enumerate(zip(questions, options, strict=True)):
        where = f"{path}, question {number + 1}"
        if not isinstance(choices, list):
            raise UserError(f"{where}: its options should be a list, and are {choices!r:.60}")
        label = _letter_index(answers[number], where) if answers is not None else None
        texts = [article, check_text(question, "the question", where)]
        yield {
            **multiple_choice.make_example(texts, choices, label, where),
            "id": f"{record.get('id', path.name)}-{number}",
        }


def _letter_index(answer: Any, where: str) -> int:
    if not isinstance(answer, str) or len(answer) != 1 or answer not in string.ascii_uppercase:
        raise UserError(f"{where}: the answer {answer!r:.60} is not a letter from A")
    return string.ascii_uppercase.index(answer)
