"""Reads a task from the default corpus: the party or century of a paragraph's author."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from finetune.datasets import Example, Read, presidents
from finetune.datasets.files import Skipped, text
from pretrain.data.corpus import sources
from pretrain.runtime.errors import UserError

# Shorter ones say little of their author, longer ones would be cut by a model of 256 tokens.
FEWEST, MOST = 20, 200  # words of a paragraph
# Splits are by the message's year; all other years are train.  Two messages of one year, which
# repeat each other, are in one split.  The same president is in several: to guess the party of a
# president never seen, word counts do worse than a coin.
LAST_DIGIT = {"dev": 4, "test": 9}
FILE_NAME = re.compile(r"(\d{4})-(.+)-\d+")
CENTURIES = {18: "18th", 19: "19th", 20: "20th", 21: "21st"}
PARTIES = (presidents.DEMOCRATIC, presidents.REPUBLICAN)


def read(path: str, *, label: str = "party") -> Read:
    """Reads paragraphs of 20 to 200 words, labelled by their author.

    The splits are by the year of the message.  A paragraph of two splits stays in the first of
    train, dev, test alone.

    Args:
        path: "train", "dev" or "test".
        label: "party", Democratic or Republican, without authors of other parties or none; or
            "century", 18th to 21st (1900 is in the 19th).

    Raises:
        UserError: there is no such split or label, or the corpus is not installed.
    """
    splits = ("train", *LAST_DIGIT)
    for name, value, choices in (("split", path, splits), ("label", label, LABELS)):
        if value not in choices:
            raise UserError(f"sotu_author: {name} {value!r} is not one of {', '.join(choices)}")
    skipped, examples = Skipped(), []
    seen: set[str] = set()
    for part in splits[: splits.index(path) + 1]:
        elsewhere = frozenset(seen)  # a repetition within a split stays
        for example in _iter_split(part, label, skipped if part == path else Skipped()):
            seen.add(example["texts"][0])
            if part == path and example["texts"][0] not in elsewhere:
                examples.append(example)
            elif part == path:
                skipped.add("paragraphs of another split", example["where"])
    counts = Counter(example["label"] for example in examples)
    sizes = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    return Read(examples, [f"{path}: {sizes}", *skipped.notes()])


def _iter_split(part: str, label: str, skipped: Skipped) -> Iterator[Example]:
    for document in sources.find_source("sotu").inputs:
        year, surname = _parse_file_name(document)
        if part != _split(year):
            continue
        name = LABELS[label](surname, year)
        for number, paragraph in enumerate(_paragraphs(document), 1):
            where = f"{document.name}, paragraph {number}"
            if reason := _skip_reason(paragraph, name):
                skipped.add(reason, where)
            else:
                yield {"texts": [paragraph], "label": name, "where": where}


def _parse_file_name(document: Path) -> tuple[int, str]:
    """Returns year and surname, from "1797-Adams-1.txt"."""
    match = FILE_NAME.fullmatch(document.stem)
    if not match:
        raise UserError(f"{document}: is not named year-president-number")
    return int(match[1]), match[2]


def _split(year: int) -> str:
    return next((part for part, digit in LAST_DIGIT.items() if year % 10 == digit), "train")


def _paragraphs(document: Path) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text(document).strip())]


def _skip_reason(paragraph: str, label: str) -> str:
    words = len(paragraph.split())
    if not label:
        return "paragraphs of authors of another party, or none"
    return "" if FEWEST <= words <= MOST else f"paragraphs of under {FEWEST} or over {MOST} words"


def _party(surname: str, year: int) -> str:
    party = presidents.party(surname, year)
    return party if party in PARTIES else ""


def _century(_: str, year: int) -> str:
    # 1801 to 1900 are the 19th.
    return CENTURIES[(year + 99) // 100]


LABELS: dict[str, Callable[[str, int], str]] = {"party": _party, "century": _century}
