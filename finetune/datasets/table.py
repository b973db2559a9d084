"""One example per row: TSV, CSV, JSON lines, and lines of a label and a text."""

import csv
import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from finetune.datasets import Read, files, records
from finetune.datasets.records import Column, Layout
from pretrain.runtime.errors import UserError

DELIMITERS = {"tsv": "\t", "csv": ","}
KINDS = (*DELIMITERS, "jsonl", "lines")
PACKED = (".gz", ".zst")
Row = tuple[int, Any]


def read(
    path: str,
    *,
    texts: Sequence[Column] = ("sentence",),
    label: Column = "label",
    kind: str = "",
    header: bool = True,
    quoting: bool | None = None,
    encoding: str = "utf-8",
    labels: Mapping[str, str] | Sequence[str] | None = None,
    until: str = "",
    label_first: bool = False,
    id: Column = "",
    number: bool = False,
    skip: Sequence[str] = (),
    strict: bool = True,
    empty: bool = False,
) -> Read:
    """Rows of texts and a label, for classification and regression.

    Args:
        path: plain, .gz or .zst.
        texts: columns, by name or by number from 0, as many as the task has texts.
        label: column; "" for files without labels.
        kind: tsv, csv, jsonl or lines ("label text"); "" goes by the file's extension.
        header: whether the first row names the columns.
        quoting: whether cells may stand in quotes; None: they may in CSV, not in TSV (GLUE's).
        labels: the labels that may be, or {as in the file: as it shall be called}.
        until: a label ends before this: with ":" TREC's "NUM:date" is NUM.
        label_first: the same as kind="lines"; header, texts and label do not count then.
        id: column to keep as the example's "id".
        number: the label is a number.
        skip: rows of these labels are left out and counted (SNLI's "-").
        strict: False leaves out rows that are wrong and counts them.
        empty: whether a text may be empty, as where no row may be lost.

    Raises:
        UserError: names the file and the line.
    """
    chosen = "lines" if label_first else kind or _kind(path)
    if chosen not in KINDS:
        raise UserError(f"kind={chosen!r} is not one of {', '.join(KINDS)}")
    if chosen == "lines":
        texts, label, header = (1,), 0, False
    columns = (texts,) if isinstance(texts, str | int) else tuple(texts)
    layout = Layout(
        columns, label, id, files.known(labels), number, tuple(skip), empty, until=until
    )
    if chosen == "jsonl":
        found, cells = files.lines(path, encoding), _object(layout)
    else:
        quoted = chosen == "csv" if quoting is None else quoting
        found = _cut(path, chosen, quoted, encoding)
        layout, cells, found = _placed(layout, found, header, path, 2 if chosen == "lines" else 0)
    placed = ((f"{path}, line {line}", row) for line, row in found)
    return records.examples(placed, layout, cells, strict)


def _kind(path: str) -> str:
    """By the extension, under that of a packing."""
    name = Path(path)
    kind = (name.with_suffix("") if name.suffix in PACKED else name).suffix[1:]
    if kind not in KINDS:
        raise UserError(f"{path}: say what it is, kind= one of {', '.join(KINDS)}")
    return kind


def _object(layout: Layout) -> Callable[[str, str], dict[str, Any]]:
    """A line of JSON that has all fields asked for."""

    def cells(line: str, where: str) -> dict[str, Any]:
        record = files.parsed(line, where)
        for column in layout.columns():
            files.field(record, str(column), object, where)
        return record

    return cells


def _cut(path: str, kind: str, quoted: bool, encoding: str) -> Iterator[Row]:
    """Rows cut into cells, each with the number of the line it begins in."""
    if quoted and kind != "lines":
        yield from _quoted(path, DELIMITERS[kind], encoding)
        return
    for line, row in files.lines(path, encoding):
        yield line, row.split(maxsplit=1) if kind == "lines" else row.split(DELIMITERS[kind])


def _quoted(path: str, delimiter: str, encoding: str) -> Iterator[Row]:
    """A cell in quotes may hold delimiters, doubled quotes and line ends."""
    csv.field_size_limit(sys.maxsize)
    ended = [line + "\n" for _, line in files.lines(path, encoding)]
    reader, begins = csv.reader(ended, delimiter=delimiter, strict=True), 1
    try:
        for row in reader:
            yield begins, row
            begins = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}, line {begins}: {error}; quoting=False if no quotes") from error


def _placed(layout: Layout, found: Iterator[Row], header: bool, path: str, width: int) -> Any:
    """The layout by numbers of columns, a check of each row's width, and the rows to read.

    The width is the first row's, if none is given.
    """
    first, cells = next(found)
    names = [name.strip() for name in cells] if header else None
    width = width or len(cells)

    def place(column: Column) -> Column:
        if column == "":
            return column
        if isinstance(column, str) and names and column in names:
            return names.index(column)
        if isinstance(column, int) and -width <= column < width:
            return column
        has = (
            f"but {', '.join(map(repr, names))}"
            if names
            else f"but {width}, by number: header=False"
        )
        raise UserError(f"{path}, line {first}: there is no column {column!r}, {has:.200}")

    def checked(row: list[str], where: str) -> list[str]:
        if len(row) != width:
            raise UserError(f"{where}: {len(row)} columns, and there should be {width}")
        return row

    layout = dataclasses.replace(
        layout,
        texts=tuple(map(place, layout.texts)),
        titles=layout.texts,
        label=place(layout.label),
        id=place(layout.id),
    )
    return layout, checked, found if header else _again((first, cells), found)


def _again(first: Row, rest: Iterator[Row]) -> Iterator[Row]:
    yield first
    yield from rest
