"""Writes pieces of text as token arrays: in parts that survive a kill, then joined."""

import hashlib
import io
import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from pretrain.data.corpus.sentences import CONTINUED, DOCUMENT, PARAGRAPH, SENTENCE, Piece
from pretrain.data.tokenizers import Tokenizer
from pretrain.data.tokenizers.special_tokens import require_special
from pretrain.runtime.files import write_file
from pretrain.runtime.progress import Progress, say

PART, BATCH = 1 << 22, 1 << 18  # characters of a file, and of a call of the tokenizer


class Pool(Protocol):
    """Writes parts in other processes, see `part_workers.PartPool`."""

    def write_part(self, path: Path, part: list[Piece], first: bool) -> int:
        """Has a part written; returns the tokens of those that were finished meanwhile."""
        ...

    def finish(self) -> int:
        """Waits until all parts are written; returns the tokens of those that were not."""
        ...


def write_parts(
    work: Path,
    pieces: Iterable[Piece],
    tokenizer: Tokenizer,
    paragraphs: bool,
    total_mb: float = 0.0,
    pool: Pool | None = None,
) -> int:
    """Tokenises into `work`/part-*.npz, and returns their number.

    Args:
        total_mb: about so much text there is; 0: it is not known.
        pool: processes that tokenise; None: this one.
    """
    # In every process that works: the one that prepares a corpus need not be the first.
    progress = Progress("tokenising", total_mb, every_process=True)
    mb, tokens, number = 0.0, 0, -1

    def describe() -> str:
        return f"{mb:,.0f} MB, {tokens:,} tokens, {tokens / progress.seconds:,.0f} tokens/s"

    closing = closing_tokens(tokenizer, paragraphs)
    for number, part in enumerate(group_pieces(pieces, PART)):
        mb += sum(len(piece.text) for piece in part) / 1e6
        # Parts that a killed run left are kept, since the text alone decides where they end.
        if not is_whole(part_path(work, number)):
            path, first = part_path(work, number), number == 0
            tokens += (
                pool.write_part(path, part, first)
                if pool
                else write_part(path, part, first, tokenizer, closing)
            )
        progress(mb, describe())
    if pool:
        tokens += pool.finish()
    progress.close(describe() if mb else "")
    return number + 1


def write_part(
    path: Path,
    part: list[Piece],
    first: bool,
    tokenizer: Tokenizer,
    closing: dict[int, np.ndarray],
) -> int:
    """Tokenises a part into a file, see `encode_part`; returns the number of its tokens."""
    arrays = encode_part(part, tokenizer, closing, first)
    save_part(path, arrays)
    return len(arrays["tokens"])


def part_path(work: Path, number: int) -> Path:
    return work / f"part-{number:06}.npz"


def is_whole(part: Path) -> bool:
    """Returns whether an earlier run wrote this part, and it is undamaged."""
    if not part.exists():
        return False
    try:
        with zipfile.ZipFile(part) as members:
            broken = members.testzip()  # NumPy does not read as far as the CRC
    except Exception as error:  # zipfile raises some ten types
        broken = str(error) or type(error).__name__
    if broken is not None:
        say(f"{part} is damaged ({broken}): it is made again", every_process=True)
    return broken is None


def save_part(part: Path, arrays: dict[str, np.ndarray]) -> None:
    # Whole or not at all: a killed run leaves no half of a part.
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    write_file(part, content.getvalue())


def group_pieces(pieces: Iterable[Piece], characters: int) -> Iterator[list[Piece]]:
    """Groups pieces into lists of `characters`, or a few more."""
    part, size = list[Piece](), 0
    for piece in pieces:
        part.append(piece)
        size += len(piece.text)
        if size >= characters:
            yield part
            part, size = [], 0
    if part:
        yield part


def closing_tokens(tokenizer: Tokenizer, paragraphs: bool) -> dict[int, np.ndarray]:
    """Returns the ids that end the text before a piece, by what the piece opens."""
    wanted = ["eod", "eop"] if paragraphs else ["eod"]
    special = tokenizer.special
    require_special(special, wanted, f"a corpus with paragraphs={paragraphs}")
    eos = [special["eos"]] if "eos" in special else []
    paragraph = [*eos, special["eop"]] if paragraphs else eos
    # A tokenizer of whole words has one mark for both, which stands once.
    eod = [] if special["eod"] in eos else [special["eod"]]
    # The end of a document ends its last sentence and paragraph first.
    ids = {CONTINUED: [], SENTENCE: eos, PARAGRAPH: paragraph, DOCUMENT: [*paragraph, *eod]}
    return {opens: np.array(end, np.int32) for opens, end in ids.items()}


def encode_part(
    part: list[Piece], tokenizer: Tokenizer, closing: dict[int, np.ndarray], first: bool
) -> dict[str, np.ndarray]:
    """Tokenises a part.

    Args:
        part: its pieces.
        closing: the ids of `closing_tokens`.
        first: no document is open before this part.

    Returns:
        "tokens"; where in them "documents" and "sentences" begin; the "words" and "bytes" of each
        document, of which the first is the one that the part before began.
    """
    opens = np.array([piece.opens for piece in part])
    ends = [closing[piece.opens] for piece in part]
    if first:
        ends[0] = closing[CONTINUED]  # no text to end
    batches = ([piece.text for piece in batch] for batch in group_pieces(part, BATCH))
    texts = [ids for batch in batches for ids in tokenizer.encode(batch)]
    arrays = [array for pair in zip(ends, texts, strict=True) for array in pair]
    # Ends and texts alternate: every other sum is where the text of a piece begins.
    begins = np.cumsum([len(array) for array in arrays])[::2]
    document = np.cumsum(opens == DOCUMENT) - first  # 0 is the one that is open already
    return {
        "tokens": np.concatenate(arrays).astype(token_dtype(tokenizer.V)),
        "documents": begins[opens == DOCUMENT],
        "sentences": np.unique(begins[opens != CONTINUED]),
        "words": _sum_by_document(document, [piece.words for piece in part]),
        "bytes": _sum_by_document(document, [piece.bytes for piece in part]),
    }


def _sum_by_document(document: np.ndarray, values: list[int]) -> np.ndarray:
    sums = np.zeros(document[-1] + 1, np.int64)
    # Not sums[document] += values, which adds once where a document has several pieces.
    np.add.at(sums, document, values)
    return sums


def token_dtype(V: int) -> np.dtype:
    """Returns the smallest type for ids below V: uint16 or uint32."""
    return np.dtype(np.uint16 if V <= 1 << 16 else np.uint32)


class Array:
    """A flat array on disk that grows, and its digest."""

    def __init__(self, folder: Path, name: str, dtype: Any):
        self.file = (folder / f"{name}.bin").open("wb")
        self.dtype, self.size, self.last = np.dtype(dtype), 0, -1
        self.sha256 = hashlib.sha256()  # of what was meant, not of what the disk returns

    def append(self, values: np.ndarray) -> None:
        if len(values):
            data = np.ascontiguousarray(values, self.dtype)
            self.file.write(data.data)
            self.sha256.update(data.data)
            self.size, self.last = self.size + len(data), int(data[-1])

    def close(self) -> dict[str, Any]:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return {"dtype": self.dtype.name, "size": self.size, "sha256": self.sha256.hexdigest()}


class Sums(Array):
    """Sums per document; the first that is appended goes to the last document before."""

    unfinished = 0

    def append(self, values: np.ndarray) -> None:
        # The last document of a part may go on in the next one.
        values[0] += self.unfinished
        self.unfinished = int(values[-1])
        super().append(values[:-1])

    def close(self) -> dict[str, Any]:
        super().append(np.array([self.unfinished]))
        return super().close()


def join_parts(
    paths: list[Path], folder: Path, tokenizer: Tokenizer, paragraphs: bool
) -> dict[str, dict[str, Any]]:
    """Joins parts to the arrays of a corpus in `folder`; returns their entries of the manifest."""
    tokens = Array(folder, "tokens", token_dtype(tokenizer.V))
    boundaries = {name: Array(folder, name, np.int64) for name in ("documents", "sentences")}
    sums = {name: Sums(folder, name, np.int64) for name in ("words", "bytes")}
    counts = np.zeros(tokenizer.V, np.int64)
    for file in paths:
        with np.load(file) as part:
            for name, array in boundaries.items():
                begins = part[name] + tokens.size
                # Text without tokens gives the same boundary twice, also across parts.
                array.append(begins[begins > array.last])
            for name, array in sums.items():
                array.append(part[name])
            _append_tokens(tokens, counts, part["tokens"])
    # The last document has no successor that would end it.
    _append_tokens(tokens, counts, closing_tokens(tokenizer, paragraphs)[DOCUMENT])
    for array in boundaries.values():
        array.append(np.array([tokens.size]))
    histogram = Array(folder, "counts", np.int64)
    histogram.append(counts)
    arrays = dict(tokens=tokens, **boundaries, **sums, counts=histogram)
    return {name: array.close() for name, array in arrays.items()}


def _append_tokens(tokens: Array, counts: np.ndarray, values: np.ndarray) -> None:
    tokens.append(values)
    counts += np.bincount(values, minlength=len(counts))
