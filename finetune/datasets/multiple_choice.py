"""A question and its choices, one JSON object per line: COPA, OpenBookQA, CommonsenseQA, ARC."""

import re
from collections.abc import Sequence
from typing import Any

from finetune.datasets import Example, Read, files
from finetune.datasets.files import field, wording
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
    """Objects like {"query": "The woman retired, therefore", "choices": [...], "gold": 0}.

    Args:
        texts: the names of what all choices share.
        choices: the name of the list of choices.
        gold: the name of the right one's number, counted from 0; "" where it is not known.
        lettered: the last text spells the choices out, "...\\nChoices:\\nA. bank\\n...\\nAnswer:",
            and the choices are their letters: the question and the choices are taken out of it.

    Raises:
        UserError: names the file and the line.
    """
    found = []
    for number, line in files.lines(path):
        where = f"{path}, line {number}"
        record = files.parsed(line, where)
        shared = [wording(field(record, name, str, where), repr(name), where) for name in texts]
        given = field(record, choices, list, where)
        if lettered:
            shared[-1], given = _spelt(shared[-1], given, where)
        label = field(record, gold, int, where) if gold else None
        found.append(example(shared, given, label, where))
    return Read(found)


def example(texts: list[str], choices: list[Any], label: int | None, where: str) -> Example:
    """A checked example; UserError if there are no two choices, or no such choice as the label."""
    if len(choices) < 2:
        raise UserError(f"{where}: {len(choices)} choices, and there should be at least 2")
    if label is not None and not 0 <= label < len(choices):
        raise UserError(f"{where}: the right choice is {label}, of 0 to {len(choices) - 1}")
    checked = [wording(choice, f"choice {i}", where) for i, choice in enumerate(choices)]
    return {"texts": texts, "choices": checked, "label": label, "where": where}


def _spelt(text: str, letters: list[Any], where: str) -> tuple[str, list[str]]:
    """The question, and the choices in the order of their letters."""
    parts = LETTERED.fullmatch(text)
    spelt = parts["choices"].split("\n") if parts else []
    if not parts or [line.partition(". ")[0] for line in spelt] != letters:
        raise UserError(f"{where}: lettered=True, but the text does not spell out {letters!r:.60}")
    return parts["question"], [line.partition(". ")[2] for line in spelt]
