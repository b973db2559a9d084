"""Reads questions about a paragraph, answered by a span of it: SQuAD 1.1, 2.0 and XQuAD."""

from collections.abc import Iterator
from typing import Any

from finetune.datasets import Example, Read, files
from finetune.datasets.files import Skipped, check_text, field
from pretrain.runtime.errors import UserError


def read(path: str, *, strict: bool = True) -> Read:
    """Reads questions in the order of the file; offsets count the characters of the context.

    An unanswerable question of SQuAD 2.0 is "impossible" and has no answers; a question without
    answers that is not impossible is one of a test file.

    Args:
        strict: whether an answer that is not at its offset is an error.  Else it is left out and
            counted, and so is a question without another.

    Raises:
        UserError: the file is malformed; names the file and the question.
    """
    seen: set[str] = set()
    examples: list[Example] = []
    skipped = Skipped()
    for context, question in _iter_questions(path):
        where = f"{path}, question {question.get('id')!r}"
        example = _example(context, question, where)
        # Predictions are keyed by the id: one would be lost.
        if example["id"] in seen:
            raise UserError(f"{where}: the id is there twice")
        seen.add(example["id"])
        _check_answers(example, None if strict else skipped)
        # Not impossible, but with no answer left to learn.
        if question.get("answers") and not example["answers"] and not example["impossible"]:
            skipped.add("questions without a right answer", where)
        else:
            examples.append(example)
    return Read(examples, skipped.notes())


def _iter_questions(path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields (context, question)."""
    articles = field(files.parse_json(files.text(path), path), "data", list, path)
    for number, article in enumerate(articles, 1):
        for place, paragraph in enumerate(field(article, "paragraphs", list, path), 1):
            where = f"{path}, article {number}, paragraph {place}"
            context = check_text(field(paragraph, "context", str, where), "the context", where)
            for question in field(paragraph, "qas", list, where):
                field(question, "id", str, where)
                yield context, question


def _example(context: str, question: dict[str, Any], where: str) -> Example:
    # SQuAD 1.1 has no such field, and test files have no answers.
    impossible = "is_impossible" in question and field(question, "is_impossible", bool, where)
    answers = field(question, "answers", list, where) if "answers" in question else []
    if impossible and answers:
        raise UserError(f"{where}: is impossible, and has answers")
    return {
        "id": question["id"],
        "question": check_text(field(question, "question", str, where), "the question", where),
        "context": context,
        "answers": [
            {
                "text": check_text(field(answer, "text", str, where), "an answer", where),
                "start": field(answer, "answer_start", int, where),
            }
            for answer in answers
        ],
        "impossible": impossible,
        "where": where,
    }


def _check_answers(example: Example, skipped: Skipped | None) -> None:
    """Drops the answers that are not at their offset, or raises if `skipped` is None."""
    # Offsets into a text that was normalised since are the usual damage.
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
