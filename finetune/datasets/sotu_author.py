"""A task that needs nothing downloaded: whose paragraph of an annual message is this?"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from finetune.datasets import Example, Read, presidents
from finetune.datasets.files import Skipped, text
from pretrain.data.corpus import sources
from pretrain.runtime.errors import UserError

FEWEST, MOST = 20, 200  # words of a paragraph
LAST_DIGIT = {"dev": 4, "test": 9}  # of the message's year; all other years are train
NAMED = re.compile(r"(\d{4})-(.+)-\d+")
CENTURIES = {18: "18th", 19: "19th", 20: "20th", 21: "21st"}
PARTIES = (presidents.DEMOCRATIC, presidents.REPUBLICAN)


def read(path: str, *, label: str = "party") -> Read:
    """Paragraphs of 20 to 200 words of the default corpus, and what their author was.

    The splits are by the year of the message, so that no document is in two of them, nor two
    messages of one year, which repeat each other: years that end in 4 are dev, in 9 test. The same
    president is in several splits: a party is known by what it said in its time, and the
    party of a president never seen is a guess at the era (word counts fare worse than a coin).
    A paragraph that stands in two splits is left in the first of train, dev, test alone.

    Args:
        path: "train", "dev" or "test".
        label: "party", Democratic or Republican, the authors of other parties or none being left
            out; or "century", 18th to 21st (1900 is in the 19th).

    Raises:
        UserError: there is no such split or label, or the corpus is not installed.
    """
    splits = ("train", *LAST_DIGIT)
    for name, value, choices in (("split", path, splits), ("label", label, LABELS)):
        if value not in choices:
            raise UserError(f"sotu_author: {name} {value!r} is not one of {', '.join(choices)}")
    skipped, found = Skipped(), []
    before: set[str] = set()
    for part in splits[: splits.index(path) + 1]:
        elsewhere = frozenset(before)
        for example in _of(part, label, skipped if part == path else Skipped()):
            before.add(example["texts"][0])
            if part == path and example["texts"][0] not in elsewhere:
                found.append(example)
            elif part == path:
                skipped.add("paragraphs of another split", example["where"])
    counts = Counter(example["label"] for example in found)
    told = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    return Read(found, [f"{path}: {told}", *skipped.notes()])


def _of(part: str, label: str, skipped: Skipped) -> Iterator[Example]:
    """The examples of a split as its documents have them."""
    for document in sources.find("sotu").inputs:
        year, surname = _named(document)
        if part != _split(year):
            continue
        name = LABELS[label](surname, year)
        for number, paragraph in enumerate(_paragraphs(document), 1):
            where = f"{document.name}, paragraph {number}"
            if reason := _unfit(paragraph, name):
                skipped.add(reason, where)
            else:
                yield {"texts": [paragraph], "label": name, "where": where}


def _named(document: Path) -> tuple[int, str]:
    """Year and surname, from "1797-Adams-1.txt"."""
    found = NAMED.fullmatch(document.stem)
    if not found:
        raise UserError(f"{document}: is not named year-president-number")
    return int(found[1]), found[2]


def _split(year: int) -> str:
    return next((part for part, digit in LAST_DIGIT.items() if year % 10 == digit), "train")


def _paragraphs(document: Path) -> list[str]:
    """With single blanks between the words."""
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text(document).strip())]


def _unfit(paragraph: str, label: str) -> str:
    """Why a paragraph is left out, or ""."""
    words = len(paragraph.split())
    if not label:
        return "paragraphs of authors of another party, or none"
    return "" if FEWEST <= words <= MOST else f"paragraphs of under {FEWEST} or over {MOST} words"


def _party(surname: str, year: int) -> str:
    found = presidents.party(surname, year)
    return found if found in PARTIES else ""


def _century(_: str, year: int) -> str:
    return CENTURIES[(year + 99) // 100]


LABELS: dict[str, Callable[[str, int], str]] = {"party": _party, "century": _century}
