"""Questions about a paragraph, answered by a span of it: SQuAD 1.1, 2.0 and XQuAD."""

from collections.abc import Iterator
from typing import Any

from finetune.datasets import Example, Read, files
from finetune.datasets.files import Skipped, field, wording
from pretrain.runtime.errors import UserError


def read(path: str, *, strict: bool = True) -> Read:
    """Questions in the order of the file; contexts are kept to the character, offsets count them.

    An unanswerable question of SQuAD 2.0 is "impossible" and has no answers; a question without
    answers that is not impossible is one of a test file.

    Args:
        strict: False leaves out answers that are not in the text at their offset, and questions
            that are left without one, and counts both.

    Raises:
        UserError: names the file and the question.
    """
    seen: set[str] = set()
    found: list[Example] = []
    skipped = Skipped()
    for context, question in _questions(path):
        where = f"{path}, question {question.get('id')!r}"
        example = _example(context, question, where)
        if example["id"] in seen:
            raise UserError(f"{where}: the id is there twice")
        seen.add(example["id"])
        _check_answers(example, None if strict else skipped)
        if question.get("answers") and not example["answers"] and not example["impossible"]:
            skipped.add("questions without a right answer", where)
        else:
            found.append(example)
    return Read(found, skipped.notes())


def _questions(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each question and its context."""
    articles = field(files.parsed(files.text(path), path), "data", list, path)
    for number, article in enumerate(articles, 1):
        for place, paragraph in enumerate(field(article, "paragraphs", list, path), 1):
            where = f"{path}, article {number}, paragraph {place}"
            context = wording(field(paragraph, "context", str, where), "the context", where)
            for question in field(paragraph, "qas", list, where):
                field(question, "id", str, where)
                yield context, question


def _example(context: str, question: dict[str, Any], where: str) -> Example:
    impossible = "is_impossible" in question and field(question, "is_impossible", bool, where)
    answers = field(question, "answers", list, where) if "answers" in question else []
    if impossible and answers:
        raise UserError(f"{where}: is impossible, and has answers")
    return {
        "id": question["id"],
        "question": wording(field(question, "question", str, where), "the question", where),
        "context": context,
        "answers": [
            {
                "text": wording(field(answer, "text", str, where), "an answer", where),
                "start": field(answer, "answer_start", int, where),
            }
            for answer in answers
        ],
        "impossible": impossible,
        "where": where,
    }


def _check_answers(example: Example, skipped: Skipped | None) -> None:
    """Keeps the answers that are where they say; the others are errors or counted."""
    right = []
    for answer in example["answers"]:
        text, start = answer["text"], answer["start"]
        if start >= 0 and example["context"].startswith(text, start):
            right.append(answer)
            continue
        there = example["context"][max(start, 0) :][: len(text)]
        wrong = f"{example['where']}: the answer {text!r:.60} is not at {start}: {there!r:.60} is"
        if skipped is None:
            raise UserError(f"{wrong}; strict=False leaves it out")
        skipped.add("answers at a wrong offset", wrong)
    example["answers"] = right
