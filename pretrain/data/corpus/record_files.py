"""Refuses files of records and tables, whose marks would be learned as words."""

import itertools
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

from pretrain.data.corpus import record_readers, text_files
from pretrain.runtime.errors import UserError

HEAD = 1 << 16  # characters that show what a file is
RECORD = re.compile(r'\s*(?:\[\s*)?\{\s*(?:"|\}|$)')  # how JSON of objects begins
ENDING = re.compile(r"[ \t\r]*(?:\n|$)")

# A cell is of 128 KiB at most, unless it is said otherwise.
CSV = (
    "import csv, sys; csv.field_size_limit(sys.maxsize); "
    '[print(x["text"], end="\\n\\n") for x in csv.DictReader(open({path}){how})]'
)
ARRAY = 'import json; [print(x["text"], end="\\n\\n") for x in json.load(open({path}))]'
ARROW = 'import datasets; print(*datasets.Dataset.from_file({path})["text"], sep="\\n\\n")'
TEXT_OF = {  # by suffix: what it is, and Python that prints its text, where no source reads it
    ".jsonl": ("JSON lines", ""),
    ".ndjson": ("JSON lines", ""),
    ".json": ("JSON", ARRAY),
    ".csv": ("a table", CSV.replace("{how}", "")),
    ".tsv": ("a table", CSV.replace("{how}", ', delimiter="\\t"')),
    ".parquet": ("Parquet", ""),
    ".arrow": ("Arrow", ARROW),
    ".feather": (
        "Arrow",
        'import pandas; print(*pandas.read_feather({path})["text"], sep="\\n\\n")',
    ),
}
SOURCES = {x: kind for kind, suffixes in record_readers.SUFFIXES.items() for x in suffixes}
MAGIC = {  # how the others begin
    re.compile(rb"PAR1[\0-\x1f]"): ".parquet",
    re.compile(rb"ARROW1\0\0"): ".feather",
    re.compile(rb"\xff{4}..\0\0", re.DOTALL): ".arrow",
}


def check_name(path: Path) -> None:
    """Raises UserError if the suffix of the file, packed or not, is one of records."""
    suffixes = [suffix.lower() for suffix in PurePath(path.name).suffixes]
    is_packed = suffixes[-1:] and suffixes[-1] in text_files.PACKINGS
    suffix = next(iter(suffixes[-1 - bool(is_packed) :]), "")
    if suffix in TEXT_OF:
        raise _refuse_records(path, suffix)


def read_lines(path: Path) -> Iterator[str]:
    """Yields the lines of a text file, see `text_files.read_lines`.

    Raises:
        UserError: as there, and if the file begins as one of records does.
    """
    blocks = text_files.read_blocks(path)
    # The first block decides, and is then read on: a pipe or a bucket is not opened twice.
    first = next(blocks, b"")
    if kind := next((kind for magic, kind in MAGIC.items() if magic.match(first)), ""):
        raise _refuse_records(path, kind)
    texts = text_files.decode_blocks(itertools.chain([first] if first else [], blocks), str(path))
    yield from text_files.split_lines(_check_head(texts, path))


def _check_head(texts: Iterable[str], path: Path) -> Iterator[str]:
    texts, head, is_all = iter(texts), "", True
    for piece in texts:
        head += piece
        if len(head) >= HEAD:
            is_all = False
            break
    if kind := _recognise_records(head, is_all):
        raise _refuse_records(path, kind)
    yield head
    yield from texts


def _recognise_records(head: str, is_all: bool) -> str:
    """Returns the suffix for a text that begins with objects in JSON; "" for any other."""
    # The first three values are objects or lists of objects, and nothing else is on the lines where
    # they end.  Three, as prose may begin with one brace; more would cost time on every file.
    at, kinds = 0, list[str]()
    while len(kinds) < 3 and head[at:].strip():
        if not RECORD.match(head, at):
            return ""
        at += len(head[at:]) - len(head[at:].lstrip())
        begin, whole = at, head[at] == "["
        try:
            value, at = json.JSONDecoder().raw_decode(head, at)
        except (json.JSONDecodeError, RecursionError) as error:  # or objects a thousand deep
            if isinstance(error, ValueError) and (is_all or not _is_cut(error, head)):
                return ""
            kinds.append(".json" if whole else ".jsonl")
            break
        if not _is_records(value) or not ENDING.match(head, at):
            return ""
        kinds.append(".json" if whole or "\n" in head[begin:at] else ".jsonl")
    return kinds[0] if kinds else ""


def _is_records(value: Any) -> bool:
    return isinstance(value, dict) or (bool(value) and all(isinstance(x, dict) for x in value))


def _is_cut(error: json.JSONDecodeError, head: str) -> bool:
    """Returns whether the JSON is correct up to where the head was cut off."""
    # Eight: a literal, or an escape as \u1234, may be cut in two, and is named where it begins.
    return error.pos >= len(head) - 8 or error.msg.startswith("Unterminated string")


def _refuse_records(path: Path, suffix: str) -> UserError:
    what, code = TEXT_OF[suffix]
    packing = path.suffix if path.suffix in text_files.PACKINGS else ""
    plain = str(path).removesuffix(packing)
    if suffix in SOURCES:
        return UserError(
            f"{path} holds {what}, and all of it would be learned as text: read it by "
            f"source='{SOURCES[suffix]}:...', whose text_key names what the text is under"
        )
    line = code.format(path=json.dumps(plain, ensure_ascii=False))
    stem = PurePath(plain).stem
    return UserError(
        f"{path} holds {what}, and all of it would be learned as text; write its text alone to a "
        f"file{', once it is unpacked' * bool(packing)}: python -c {shlex.quote(line)} > "
        f'{shlex.quote(stem + ".txt")}  (with its column for "text"), and use that with '
        "--config.corpus.documents=blank"
    )
