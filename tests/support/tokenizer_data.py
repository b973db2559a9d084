"""What the tests of all tokenizers share: invented text, published files, a process that learns.

python -m tests.support.tokenizer_data <folder>   learns one of each kind and saves them there
"""

import os
import sys
from pathlib import Path

import pytest

from pretrain.data import tokenizers
from tests.support import corpora

TEXTS = corpora.prose(0, 400).split("\n")
V = {"wordpiece": 260, "byte_bpe": 420, "bpe": 260}
PUBLISHED = Path(
    os.environ.get(
        "PUBLISHED_TOKENIZERS", Path(__file__).parents[3] / "shared" / "data" / "tokenizers"
    )
)


def learn(name, texts=TEXTS, **fields):
    return tokenizers.learn(iter(texts), **{"name": name, "V": V[name]} | fields)


def published(name, model, **fields):
    """The tokenizer of these files; without them the test is skipped."""
    path = PUBLISHED / model
    if not path.exists():
        pytest.skip(f"set PUBLISHED_TOKENIZERS to a folder that holds {model}")
    return tokenizers.learn(iter(()), name=name, model=str(path), **fields)


def pieces(tokenizer, text):
    return [tokenizer.pieces[i] for i in tokenizer.encode([text])[0]]


def starts(tokenizer):
    """Piece to whether a word begins with it."""
    return dict(zip(tokenizer.pieces, tokenizer.word_start_V.tolist(), strict=True))


if __name__ == "__main__":
    for kind in V:
        learn(kind).save(Path(sys.argv[1]) / kind)
