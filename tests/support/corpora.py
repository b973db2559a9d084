"""Small corpora that the tests of the data layer share, made in moments from invented words."""

import random
from pathlib import Path
from typing import Any

from pretrain.data import prepare
from pretrain.data.corpus.format import Corpus

SYLLABLES = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "in", "or", "ust")]
WORDS = [a + b for a in SYLLABLES for b in SYLLABLES[::4]]
TOKENS: dict[str, Any] = {"name": "sentencepiece", "V": 150}


def prose(seed: int, sentences: int, per_paragraph: int = 5) -> str:
    """Sentences of 3 to 20 words; a blank line after every few."""
    rng = random.Random(seed)
    lines = []
    for number in range(1, sentences + 1):
        words = rng.choices(WORDS, k=rng.randint(3, 20))
        lines.append(" ".join(words).capitalize() + ".")
        if number % per_paragraph == 0:
            lines.append("")
    return "\n".join(lines) + "\n"


def write(folder: Path, documents: int = 12, sentences: int = 40) -> str:
    """Writes files of prose; returns them as a source."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(documents):
        (folder / f"{number:03}.txt").write_text(prose(number, sentences + number))
    return f"text:{folder}/*.txt"


def make(folder: Path, **fields) -> Corpus:
    source = write(folder / "text")
    return prepare.prepare(**{"source": source, "cache": str(folder), "tokens": TOKENS} | fields)
