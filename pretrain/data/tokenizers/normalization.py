"""XLNet's clean-up of text before its pieces: blanks, quotes, accents, case."""

import re
import unicodedata
from typing import NamedTuple


def clean(text: str, lower: bool, keep_accents: bool) -> str:
    """One blank between words, `` and '' as ", accents dropped, lower case if asked."""
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    if not keep_accents and not text.isascii():
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(c for c in decomposed if not unicodedata.combining(c))
    return text.lower() if lower else text


class Cleaned(NamedTuple):
    """What `clean` makes of a text; its character c comes from [starts[c], ends[c]) there."""

    text: str
    starts: list[int]
    ends: list[int]

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Where these characters were in the text that was cleaned."""
        if start >= end:
            at = self.starts[start] if start < len(self.starts) else (self.ends or [0])[-1]
            return at, at
        return self.starts[start], self.ends[end - 1]


def aligned(text: str, lower: bool, keep_accents: bool) -> Cleaned:
    """`clean`, and where each of its characters comes from; slower."""
    made: list[tuple[str, int, int]] = []
    for char, start, end in _joined(text):
        kept = char if keep_accents else _plain(char)
        if not kept and made:  # an accent of its own belongs to its letter
            made[-1] = (*made[-1][:2], end)
        made += [(each, start, end) for each in kept]
    whole = "".join(char for char, _, _ in made)
    if lower:
        made = [(low, start, end) for char, start, end in made for low in char.lower()]
        whole = whole.lower()  # a sigma at the end of a word has a form of its own
    return Cleaned(whole, [start for _, start, _ in made], [end for _, _, end in made])


def _joined(text: str) -> list[tuple[str, int, int]]:
    """Characters with one blank between words and plain quotes, and where they were."""
    made: list[tuple[str, int, int]] = []
    for word in re.finditer(r"\S+", text):
        if made:
            made.append((" ", made[-1][2], word.start()))
        for part in re.finditer("``|''|.", word[0], re.DOTALL):
            start, end = (word.start() + at for at in part.span())
            made.append((part[0] if end - start == 1 else '"', start, end))
    return made


def _plain(char: str) -> str:
    decomposed = unicodedata.normalize("NFKD", char)
    return "".join(c for c in decomposed if not unicodedata.combining(c))
