"""Cleans text as XLNet does before it is cut into pieces: blanks, quotes, accents, case."""

import re
import unicodedata
from typing import NamedTuple


def clean_text(text: str, lower: bool, keep_accents: bool) -> str:
    """Cleans a text: one blank between words, `` and '' as ".

    Args:
        text: any text.
        lower: lower its case.
        keep_accents: keep the accents, which are dropped otherwise.
    """
    text = " ".join(text.split()).replace("``", '"').replace("''", '"')
    if not keep_accents and not text.isascii():  # most text is, and needs no second look
        text = _drop_accents(text)
    return text.lower() if lower else text


class Cleaned(NamedTuple):
    """A cleaned text, whose character c comes from [starts[c], ends[c]) of the original."""

    text: str
    starts: list[int]
    ends: list[int]

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Returns the span in the original of the characters [start, end)."""
        if start >= end:
            at = self.starts[start] if start < len(self.starts) else (self.ends or [0])[-1]
            return at, at
        return self.starts[start], self.ends[end - 1]


def clean_with_origins(text: str, lower: bool, keep_accents: bool) -> Cleaned:
    """Cleans a text like `clean_text`, and tells where each character comes from; slower."""
    chars: list[tuple[str, int, int]] = []
    for char, start, end in _join_words(text):
        letters = char if keep_accents else _drop_accents(char)
        if not letters and chars:  # an accent of its own belongs to its letter
            chars[-1] = (*chars[-1][:2], end)
        chars += [(letter, start, end) for letter in letters]
    whole = "".join(char for char, _, _ in chars)
    if lower:
        # One capital may become two characters.
        chars = [(low, start, end) for char, start, end in chars for low in char.lower()]
        whole = whole.lower()  # a sigma at the end of a word has a form of its own
    return Cleaned(whole, [start for _, start, _ in chars], [end for _, _, end in chars])


def _join_words(text: str) -> list[tuple[str, int, int]]:
    """Lists (character, start, end), with one blank between words and plain quotes."""
    chars: list[tuple[str, int, int]] = []
    for word in re.finditer(r"\S+", text):
        if chars:
            chars.append((" ", chars[-1][2], word.start()))
        for part in re.finditer("``|''|.", word[0], re.DOTALL):
            start, end = (word.start() + at for at in part.span())
            chars.append((part[0] if end - start == 1 else '"', start, end))
    return chars


def _drop_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(c for c in decomposed if not unicodedata.combining(c))
