"""Invented text, published files and a process that learns, for the tests of all tokenizers.

python -m tests.support.tokenizer_data <folder>   learns one of each kind and saves them there
"""

import functools
import os
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from pretrain.data import tokenizers
from pretrain.data.tokenizers import registry, sentencepiece
from tests.support import corpora

TEXTS = corpora.prose(0, 400).split("\n")
ODD = [
    "",
    "   ",
    "Café  “naïve”\tÜnï\n code—it's ``so'' ''and`` on, e\u0301a ",
    "In 1990, 2,000, or 12,345,678, ﬁne ½ Σας ΣΑΣ İx 北京大学, 🙂 \x07 ´end´",
]
V = {"bpe": 260, "byte_bpe": 420, "sentencepiece": 150, "wordpiece": 260}
KINDS = (*V, "words")
PUBLISHED = Path(
    os.environ.get(
        "PUBLISHED_TOKENIZERS", Path(__file__).parents[3] / "shared" / "data" / "tokenizers"
    )
)


def learn(name: str, texts=TEXTS, **fields: Any) -> tokenizers.Tokenizer:
    size = {"V": V[name]} if name in V else {}
    return registry.learn(iter(texts), **{"name": name} | size | fields)


@functools.cache
def unigram() -> sentencepiece.Tokenizer:
    """XLNet's kind, of 31 pieces."""
    texts = ["abc cab bca abd", "dab bad cad ace", "bee deed add"] * 20
    return sentencepiece.Tokenizer.learn(iter(texts), V=31)


def published(name: str, model: str, **fields: Any) -> tokenizers.Tokenizer:
    """Loads the tokenizer of these files; without them the test is skipped."""
    path = PUBLISHED / model
    if not path.exists():
        pytest.skip(f"set PUBLISHED_TOKENIZERS to a folder that holds {model}")
    return registry.learn(iter(()), name=name, model=str(path), **fields)


def pieces(tokenizer: tokenizers.Tokenizer, text: str) -> list[str]:
    return [tokenizer.pieces[i] for i in tokenizer.encode([text])[0]]


def starts(tokenizer: tokenizers.Tokenizer) -> dict[str, bool]:
    """Maps each piece to whether a word begins with it."""
    return dict(zip(tokenizer.pieces, tokenizer.word_start_V.tolist(), strict=True))


def keep_letters(text: str) -> str:
    """Drops all but letters and digits, and case, accents and compatibility forms."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in unicodedata.normalize("NFKD", decomposed) if c.isalnum())


def spell_word(word: str, W: int) -> list[int]:
    """Spells a word as ELMo's own code does, a byte at a time."""
    bos, eos, bow, eow, pad = 256, 257, 258, 259, 260
    inside = {"<S>": [bos], "</S>": [eos]}.get(word, list(word.encode())[: W - 2])
    ids = [bow, *inside, eow]
    return ids + [pad] * (W - len(ids))


if __name__ == "__main__":
    for kind in KINDS:
        learn(kind).save(Path(sys.argv[1]) / kind)
