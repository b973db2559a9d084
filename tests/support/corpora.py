"""Small corpora that the tests of the data layer share, made in moments from invented words.

python -m tests.support.corpora <source> <cache> <n> <processes>

prepares in small parts, by so many processes, and kills itself at the n-th change to a file.
"""

import hashlib
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

from pretrain.data import prepare
from pretrain.data.corpus import sources, writer
from pretrain.data.corpus.prepared_corpus import Corpus

SYLLABLES = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "in", "or", "ust")]
WORDS = [a + b for a in SYLLABLES for b in SYLLABLES[::4]]
TOKENS: dict[str, Any] = {"name": "sentencepiece", "V": 150}


def prose(seed: int, sentences: int, per_paragraph: int = 5) -> str:
    """Invents sentences of 3 to 20 words; a blank line comes after every few."""
    rng = random.Random(seed)
    lines = []
    for number in range(1, sentences + 1):
        words = rng.choices(WORDS, k=rng.randint(3, 20))
        lines.append(" ".join(words).capitalize() + ".")
        if number % per_paragraph == 0:
            lines.append("")
    return "\n".join(lines) + "\n"


def write_with_new_words(path: Path) -> str:
    """Writes prose whose commonest words are in no other; returns it as a source."""
    text = prose(7, sentences=96, per_paragraph=12) + 60 * "so vuv Zyx vuv Zyx vuv.\n"
    path.write_text(text)
    return f"text:{path}"


def write(folder: Path, documents: int = 12, sentences: int = 40) -> str:
    """Writes files of prose; returns them as a source."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(documents):
        (folder / f"{number:03}.txt").write_text(prose(number, sentences + number))
    return f"text:{folder}/*.txt"


def load(source: str, cache: Path, **fields: Any) -> Corpus:
    """Prepares a source, or opens it if it is prepared."""
    return prepare.prepare(**{"source": source, "cache": str(cache), "tokens": TOKENS} | fields)


def make(folder: Path, **fields: Any) -> Corpus:
    """Writes files of prose and prepares them."""
    return load(write(folder / "text"), folder, **fields)


def find_source(source: str, **fields: str) -> sources.Source:
    """Finds a source with the recipe's defaults."""
    return sources.find_source(
        source, **{"text_key": "text", "tfds_split": "train", "tfds_dir": ""} | fields
    )


def hash_files(folder: Path) -> dict[str, str]:
    """Returns the sha256 of every file of a corpus, by its path within."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def hash_arrays(folder: Path) -> dict[str, str]:
    """Returns the sha256 of every array of a corpus, by its file's name."""
    return {name: digest for name, digest in hash_files(folder).items() if name.endswith(".bin")}


def flip_bit(path: Path, bit: int) -> None:
    """Flips a bit behind the file system's back: size and times stay."""
    status, content = path.stat(), bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def kill_at(change: int) -> None:
    """Makes this process kill itself at its n-th change to a file."""
    left = change

    def count(real):
        def call(*args, **named):
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **named)

        return call

    for name in ("fsync", "rename", "replace", "unlink", "rmdir", "mkdir"):
        setattr(os, name, count(getattr(os, name)))


if __name__ == "__main__":
    kill_at(int(sys.argv[3]))
    writer.PART = 3000
    print(load(sys.argv[1], Path(sys.argv[2]), processes=int(sys.argv[4])).fingerprint)
