"""Reads questions with choices, one JSON object per line: COPA, OpenBookQA, CommonsenseQA, ARC."""

import re
from collections.abc import Sequence
from typing import Any

from finetune.datasets import Example, Read, files
from finetune.datasets.files import check_text, field
from pretrain.runtime.errors import UserError

LETTERED = re.compile(r"(?P<question>.*?)\s*\nChoices:\n(?P<choices>.*?)\s*\nAnswer:\s*", re.DOTALL)


def read(
    path: str,
    *,
    texts: Sequence[str] = ("query",),
    choices: str = "choices",
    gold: str = "gold",
    lettered: bool = False,
) -> Read:
    """Reads objects like {"query": "The woman retired, therefore", "choices": [...], "gold": 0}.

    Args:
        texts: names of the texts that all choices share.
        choices: name of the list of choices.
        gold: name of the right one's number, counted from 0; "" where it is not known.
        lettered: the last text spells the choices out, "...\\nChoices:\\nA. bank\\n...\\nAnswer:",
            and `choices` are their letters; question and choices are taken out of it.

    Raises:
        UserError: the file is malformed; names the file and the line.
    """
    examples = []
    for number, line in files.lines(path):
        where = f"{path}, line {number}"
        record = files.parse_json(line, where)
        shared = [check_text(field(record, name, str, where), repr(name), where) for name in texts]
        options = field(record, choices, list, where)
        if lettered:
            shared[-1], options = _split_lettered(shared[-1], options, where)
        # The test sets of leaderboards come without.
        label = field(record, gold, int, where) if gold else None
        examples.append(make_example(shared, options, label, where))
    return Read(examples)


def make_example(texts: list[str], choices: list[Any], label: int | None, where: str) -> Example:
    """Builds a checked example; UserError if it has too few choices or the label is none."""
    # One choice would teach nothing and always be right.
    if len(choices) < 2:
        raise UserError(f"{where}: {len(choices)} choices, and there should be at least 2")
    if label is not None and not 0 <= label < len(choices):
        raise UserError(f"{where}: the right choice is {label}, of 0 to {len(choices) - 1}")
    checked = [check_text(choice, f"choice {i}", where) for i, choice in enumerate(choices)]
    return {"texts": texts, "choices": checked, "label": label, "where": where}


def _split_lettered(text: str, letters: list[Any], where: str) -> tuple[str, list[str]]:
    """Returns the question, and the choices in the order of their letters."""
    # Some questions hold "A. ..." themselves, so the letters have to agree, too.
    parts = LETTERED.fullmatch(text)
    spelt = parts["choices"].split("\n") if parts else []
    if not parts or [line.partition(". ")[0] for line in spelt] != letters:
        raise UserError(f"{where}: lettered=True, but the text does not spell out {letters!r:.60}")
    return parts["question"], [line.partition(". ")[2] for line in spelt]
