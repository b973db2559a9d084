"""Reads words' vectors as others publish them: GloVe's text, word2vec's text and binary, NumPy's.

    .npz            arrays words, [V] of text, and vectors, [V, D]
    .bin            word2vec's: "V D" in a line, then each word, a blank, D float32
    .txt .vec ...   a word and D numbers a line, separated by blanks; word2vec's begins with "V D"

The last two may be packed, .gz or .zst.  Only the vectors that are wanted stay in memory.
"""

import zipfile
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pretrain.data.corpus.text_files import PACKINGS, decode_blocks, read_blocks
from pretrain.runtime.errors import UserError

LONGEST = 1 << 12  # bytes of a word or a header; more, and a binary file is none


class Vectors(NamedTuple):
    """Words' vectors of a file.

    Attributes:
        by_word: vectors of the wanted words, [D] float32 each.
        D: width.
        notes: what the user should know.
    """

    by_word: dict[str, np.ndarray]
    D: int
    notes: list[str]


def read(path: str, wanted: Collection[str]) -> Vectors:
    """Reads the vectors of the wanted words, of a word that stands there twice the first.

    Raises:
        UserError: the file is missing or malformed; names the file and the place.
    """
    file = Path(path).expanduser()
    name = file.with_suffix("") if file.suffix in PACKINGS else file
    records = READERS.get(name.suffix, _read_text)(file)
    by_word: dict[str, np.ndarray] = {}
    twice: dict[str, str] = {}
    D = 0
    for where, word, parse in records:
        if word not in wanted:
            continue
        if word in by_word:
            twice.setdefault(word, where)
            continue
        # Millions of words may stand there: only the numbers of wanted ones are parsed.
        vector_D = by_word[word] = parse()
        D = D or len(vector_D)
        if not np.isfinite(vector_D).all():
            raise UserError(f"{where}: the vector of {word!r} holds numbers that are not finite")
    if not by_word:
        raise UserError(f"{path}: no word of the texts has a vector there")
    notes = []
    if twice:
        word, where = next(iter(twice.items()))
        notes = [f"{len(twice):,} words stand there twice, and the first counts: {word!r}, {where}"]
    return Vectors(by_word, D, notes)


Record = tuple[str, str, Callable[[], np.ndarray]]  # its place, the word, and what parses numbers


def _read_text(file: Path) -> Iterator[Record]:
    """Yields the lines of a text file, whose numbers are parsed where they are wanted."""
    D = count = number = 0
    for number, line in enumerate(_lines(file), 1):
        where, parts = f"{file}, line {number}", line.split(" ")
        # word2vec's form has a first line of the words' number and width, GloVe's has none.
        if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            count, D = map(int, parts)
            continue
        D = D or len(parts) - 1
        # A word may hold blanks, as "at name@domain.com" of Common Crawl, but is no number.
        surplus = parts[1 : len(parts) - D]
        if not 0 < D < len(parts) or any(map(_is_number, surplus)):
            raise UserError(f"{where}: {len(parts) - 1} numbers, and there should be {D or 'some'}")
        yield where, " ".join([parts[0], *surplus]), lambda n=parts[-D:], w=where: _parse(n, w)  # type: ignore[misc]
    if count and number - 1 != count:
        raise UserError(f"{file}: {number - 1:,} words, but its first line says {count:,}")


def _lines(file: Path) -> Iterator[str]:
    # Not by `text_files.split_lines`, which cuts long lines into parts.
    rest = ""
    for text in decode_blocks(read_blocks(file), str(file)):
        *whole, rest = (rest + text).split("\n")
        yield from (line.rstrip(" \r") for line in whole)
    if rest:
        yield rest.rstrip(" \r")


def _is_number(part: str) -> bool:
    try:
        float(part)
    except ValueError:
        return False
    return True


def _parse(parts: list[str], where: str) -> np.ndarray:
    try:
        return np.array(parts, np.float32)
    except ValueError:
        wrong = next(part for part in parts if not _is_number(part))
        raise UserError(f"{where}: {wrong!r:.60} is no number") from None


def _read_binary(file: Path) -> Iterator[Record]:
    stream = _Bytes(file)
    try:
        count, D = map(int, stream.read_until(b"\n").split())
    except ValueError:
        raise UserError(
            f"{file}: does not begin with a line of the words' number and width"
        ) from None
    for number in range(1, count + 1):
        where = f"{file}, word {number:,} of {count:,}"
        try:
            # Some writers end each vector with a line end.  Words may be cut within a character.
            word = stream.read_until(b" ").lstrip(b"\n").decode(errors="replace")
            raw = stream.read(4 * D)
        except EOFError:
            raise UserError(f"{where}: the file ends within it") from None
        except ValueError:
            raise UserError(f"{where}: is longer than {LONGEST} bytes") from None
        yield where, word, lambda raw=raw: np.frombuffer(raw, "<f4").astype(np.float32)  # type: ignore[misc]
    if stream.read_rest().strip(b"\n"):
        raise UserError(f"{file}: something is behind its {count:,} words")


class _Bytes:
    """The bytes of a file, taken from its beginning."""

    def __init__(self, file: Path):
        self._blocks, self._held = read_blocks(file), b""

    def read(self, size: int) -> bytes:
        """Reads so many bytes; EOFError if there are fewer."""
        parts, missing = [self._held], size - len(self._held)
        while missing > 0:
            if not (block := next(self._blocks, b"")):
                raise EOFError
            parts.append(block)
            missing -= len(block)
        whole = b"".join(parts)
        self._held = whole[size:]
        return whole[:size]

    def read_until(self, end: bytes) -> bytes:
        """Reads up to a byte, and over it; EOFError or ValueError if it does not come soon."""
        while (place := self._held.find(end)) < 0:
            # A text file under this suffix has no end of a word for long: it is not read whole.
            if len(self._held) > LONGEST:
                raise ValueError
            if not (block := next(self._blocks, b"")):
                raise EOFError
            self._held += block
        word, self._held = self._held[:place], self._held[place + 1 :]
        return word

    def read_rest(self) -> bytes:
        """Reads what is left, if it is little; else a part of it."""
        return self._held or next(self._blocks, b"")


def _read_npz(file: Path) -> Iterator[Record]:
    try:
        # Pickled arrays could run code.
        with np.load(file, allow_pickle=False) as arrays:
            words, vectors_VD = arrays["words"], arrays["vectors"]
    except FileNotFoundError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{file}: holds no arrays words and vectors: {error}") from error
    if words.ndim != 1 or words.dtype.kind not in "US" or vectors_VD.dtype.kind not in "fiu":
        raise UserError(f"{file}: words should be text, [V], and vectors numbers, [V, D]")
    if vectors_VD.ndim != 2 or len(vectors_VD) != len(words):
        raise UserError(f"{file}: {words.shape} words with vectors of {vectors_VD.shape}")
    for number, word in enumerate(words.tolist()):
        text = word.decode(errors="replace") if isinstance(word, bytes) else word
        yield (
            f"{file}, entry {number}",
            text,
            lambda n=number: vectors_VD[n].astype(np.float32),  # type: ignore[misc]
        )


READERS: dict[str, Callable[[Path], Iterator[Record]]] = {".npz": _read_npz, ".bin": _read_binary}
