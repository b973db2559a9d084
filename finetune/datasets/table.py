"""Reads one example per row of TSV, CSV, JSON lines, Parquet, or lines of a label and a text."""

import csv
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from finetune.datasets import Read, files, records
from finetune.datasets.records import Column, Layout
from pretrain.data.corpus import record_readers
from pretrain.runtime.errors import UserError

DELIMITERS = {"tsv": "\t", "csv": ","}
USUAL = (",", ";", "\t", "|")  # which a table that is read by another may have
SPELLED = {"\\t": "\t", "tab": "\t"}  # as a shell hands them on
KINDS = (*DELIMITERS, "jsonl", "parquet", "lines")
PACKED = (".gz", ".zst")
Row = tuple[int, Any]


def read(
    path: str,
    *,
    texts: Sequence[Column] = ("sentence",),
    label: Column = "label",
    kind: str = "",
    delimiter: str = "",
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
    empty: str = "skip",
    needs_label: bool = True,
    extra: Sequence[Column] = (),
) -> Read:
    """Reads rows of texts and a label, for classification and regression.

    Args:
        path: plain, .gz or .zst.  Lines with nothing in them are no rows, but for those of a single
            column without quotes, where an empty cell looks like that.
        texts: columns, by name or by number from 0, as many as the task has texts.
        label: column; "" for files without labels.
        kind: tsv, csv, jsonl, parquet or lines ("label text"); "" goes by the file's extension.
        delimiter: stands between the cells of a tsv or csv, as ";"; "" goes by the kind.
        header: whether the first row names the columns.
        encoding: of the file's text, as "latin-1".
        quoting: whether cells may be quoted; None: in CSV they may, in TSV (GLUE's) not.
        labels: the permitted labels, or {label in the file: its new name}.
        until: a label ends before this: with ":" TREC's "NUM:date" is NUM.
        label_first: the same as kind="lines", which ignores header, texts and label.
        id: column to keep as the example's "id".
        number: the label is a number.
        skip: rows of these labels are left out and counted (SNLI's "-").
        strict: whether a malformed row is an error; else it is left out and counted.
        empty: what becomes of a row with an empty text or label: "skip" leaves it out and counts
            it, and in a file to predict its prediction is null; "error" refuses the file; "keep"
            reads an empty text as it is, and refuses an empty label.
        needs_label: whether the label's column has to be there.
        extra: columns whose cells are the example's "extra", as text.

    Raises:
        UserError: the file is malformed; names the file and the line.
    """
    chosen = "lines" if label_first else kind or kind_of(path)
    if chosen not in KINDS:
        raise UserError(f"kind={chosen!r} is not one of {', '.join(KINDS)}")
    if empty not in records.EMPTY:
        raise UserError(f"empty={empty!r} is not one of {', '.join(records.EMPTY)}")
    if chosen == "lines":
        texts, label, header = (1,), 0, False  # split at the first blank
    # A recipe may name one text without a tuple around it.
    columns = (texts,) if isinstance(texts, str | int) else tuple(texts)
    layout = Layout(
        columns,
        label,
        id,
        files.label_names(labels),
        number,
        tuple(skip),
        empty,
        until=until,
        needs_label=needs_label,
        extra=tuple(extra),
    )
    layout, cells, rows = _open_rows(path, chosen, layout, encoding, delimiter, quoting, header)
    if layout.label in {*layout.texts} - {""}:
        raise UserError(f"{path}: texts and label are the same column, {label!r}: name the other")
    unit = "row" if chosen == "parquet" else "line"
    with_places = ((f"{path}, {unit} {number}", row) for number, row in rows)
    return records.examples(with_places, layout, cells, strict)


def _open_rows(
    path: str,
    kind: str,
    layout: Layout,
    encoding: str,
    delimiter: str,
    quoting: bool | None,
    header: bool,
) -> tuple[Layout, Callable[[Any, str], Any], Iterator[Row]]:
    """Opens a file: its layout by number if it has cells, what parses a row, and the rows."""
    if kind == "jsonl":
        rows = (x for x in files.lines(path, encoding) if x[1].strip())
        return layout, _parse_objects(layout), rows
    if kind == "parquet":
        return layout, lambda row, where: row, _read_parquet(path, layout)
    is_quoted = kind == "csv" if quoting is None else quoting
    parted_by = SPELLED.get(delimiter, delimiter) or DELIMITERS.get(kind, "")
    if len(parted_by) > 1:
        raise UserError(f"delimiter={delimiter!r} is to be one character, as ';'")
    cells = split_rows(path, kind, is_quoted, encoding, parted_by)
    width = 2 if kind == "lines" else 0  # 0: the first row's
    return _number_columns(layout, cells, header, path, width, parted_by)


def kind_of(path: str) -> str:
    """Returns the kind that a file's extension names, under one of PACKED."""
    name = Path(path)  # a.tsv.gz is a TSV
    kind = (name.with_suffix("") if name.suffix in PACKED else name).suffix[1:]
    if kind not in KINDS:
        raise UserError(f"{path}: say what it is, kind= one of {', '.join(KINDS)}")
    return kind


def _parse_objects(layout: Layout) -> Callable[[str, str], dict[str, Any]]:
    """Returns a function that parses a line of JSON with all the fields of the layout."""

    def cells(line: str, where: str) -> dict[str, Any]:
        record = files.parse_json(line, where)
        for column in layout.columns():
            files.field(record, str(column), object, where)  # raises where it is missing
        return record

    return cells


def _read_parquet(path: str, layout: Layout) -> Iterator[Row]:
    """Yields the rows of a Parquet file with the columns of the layout alone."""

    def select(names: list[str]) -> list[str]:
        wanted = [str(column) for column in layout.columns()]
        if missing := [name for name in wanted if name not in names]:
            has = ", ".join(map(repr, names))
            raise UserError(f"{path}: there is no column {missing[0]!r}, but {has:.200}")
        is_labelled = layout.label in names and not layout.needs_label
        return [*wanted, str(layout.label)] if is_labelled else wanted

    return record_readers.iter_parquet_rows(Path(path), select)


def split_rows(
    path: str, kind: str, is_quoted: bool, encoding: str, delimiter: str = ""
) -> Iterator[Row]:
    """Yields rows split into cells, with the number of the line each begins in.

    Args:
        delimiter: "": that of the kind.
    """
    delimiter = delimiter or DELIMITERS.get(kind, "")
    if is_quoted and kind != "lines":
        yield from _split_quoted(path, delimiter, encoding)
        return
    for line, row in files.lines(path, encoding):
        yield line, row.split(maxsplit=1) if kind == "lines" else row.split(delimiter)


def _guess_delimiter(column: Column, names: Sequence[str], delimiter: str) -> str:
    """Returns what to do where another delimiter would give a header this column; "": nothing."""
    line = delimiter.join(names)
    for other in USUAL:
        if other != delimiter and column in [name.strip(' "') for name in line.split(other)]:
            spelled = "\\t" if other == "\t" else other
            return (
                f"; cells seem to be parted by {other!r}: --config.data.delimiter='{spelled}', or "
                f"to predict --fields='{json.dumps(dict(delimiter=other))}'"
            )
    return ""


def _split_quoted(path: str, delimiter: str, encoding: str) -> Iterator[Row]:
    """Yields rows whose cells may hold delimiters, doubled quotes and line ends in quotes."""
    csv.field_size_limit(sys.maxsize)  # by default 128 KiB
    # The reader wants the line ends, which may be part of a cell.
    ended = [line + "\n" for _, line in files.lines(path, encoding)]
    reader, begins = csv.reader(ended, delimiter=delimiter, strict=True), 1
    try:
        for row in reader:
            yield begins, row
            begins = reader.line_num + 1
    except csv.Error as error:
        raise UserError(f"{path}, line {begins}: {error}; quoting=False if no quotes") from error


def _is_blank_line(row: Sequence[str], width: int) -> bool:
    # A line of blanks is an empty cell where rows have one, unless no cell was seen in it.
    return not row or (len(row) == 1 < width and not row[0].strip())


def _number_columns(
    layout: Layout, rows: Iterator[Row], header: bool, path: str, width: int, delimiter: str
) -> tuple[Layout, Callable[[list[str], str], list[str]], Iterator[Row]]:
    """Numbers named columns: (layout, check of a row's width, the rows without the header)."""
    filled = (x for x in rows if not _is_blank_line(x[1], width or 2))
    first, cells = next(filled, (0, []))
    if not first:  # a file without a letter was refused before, but not one of empty quotes
        raise UserError(f"{path}: has no row with anything in it")
    # Errors name the columns as the header does, or say that they have only numbers.
    names = [name.strip() for name in cells] if header else None
    width = width or len(cells)  # 0: the first row's

    def index(column: Column) -> Column:
        # There is no such column: no label, or no id.
        if column == "" or (column == layout.label and layout.may_lack_label(names or ())):
            return ""
        if isinstance(column, str) and names and column in names:
            return names.index(column)
        # A command line has no numbers where the recipe has a name.
        if not names and isinstance(column, str) and column.isdigit():
            column = int(column)
        if isinstance(column, int) and -width <= column < width:
            return column
        has = (
            f"but {', '.join(map(repr, names))}"
            if names
            else f"but {width}, by number: header=False"
        )
        hint = _guess_delimiter(column, names or (), delimiter)
        raise UserError(f"{path}, line {first}: there is no column {column!r}, {has:.200}{hint}")

    # A row of another width is a delimiter in a text, or a line end: nothing after it is sure.
    def check_width(row: list[str], where: str) -> list[str]:
        if len(row) != width:
            raise UserError(f"{where}: {len(row)} columns, and there should be {width}")
        return row

    if delimiter:  # else rows are of a label and a text
        rows = (x for x in rows if not _is_blank_line(x[1], width))
    layout = dataclasses.replace(
        layout,
        texts=tuple(map(index, layout.texts)),
        titles=layout.texts,
        label=index(layout.label),
        id=index(layout.id),
        extra=tuple(map(index, layout.extra)),
    )
    return layout, check_width, rows if header else itertools.chain([(first, cells)], rows)
