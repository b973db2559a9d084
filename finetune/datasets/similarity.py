"""Reads pairs of texts with a score of their similarity, in the formats that such sets come in.

    STS 2012 to 2016    STS.input.NAME.txt, whose scores are the lines of STS.gs.NAME.txt beside it
    STS-B               its own sts-test.csv, GLUE's dev.tsv, or lines of text,text,score
    SICK-R              SICK.txt or SICK_test_annotated.txt
    plain               TSV, CSV or JSON lines of two texts and a score, with a header or without

The format is told from the file.  Agirre et al. 2012 to 2016 (S12-1051, ...), Cer et al. 2017
(S17-2001), Marelli et al. 2014 (LREC, SICK).
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from finetune.datasets import Read, files, records, table
from finetune.datasets.files import Skipped
from finetune.datasets.records import Column, Layout
from pretrain.runtime.errors import UserError

INPUT = re.compile(r"(STS\d*)\.input\.(.+\.txt)")
NUMBER = re.compile(r"-?\d+(\.\d*)?")
NAMES = (  # of two texts and a score, by which files know their columns
    ("sentence_A", "sentence_B", "relatedness_score"),
    ("sentence1", "sentence2", "score"),
    ("sentence1", "sentence2", "similarity_score"),
    ("sentence1", "sentence2", "label"),
    ("text1", "text2", "score"),
    ("text_a", "text_b", "label"),
)
WANTS = (
    "want STS.input.*.txt with STS.gs.*.txt beside it, STS-B, SICK, or rows of two texts and a "
    "score, perhaps under a header such as " + ", ".join(NAMES[1])
)


class Columns(NamedTuple):
    """Names the columns of the texts and the score; a row may have more at its end."""

    texts: tuple[Column, Column]
    score: Column
    width: int = 0
    has_header: bool = False


def read(path: str) -> Read:
    """Reads pairs, {"texts": [str, str], "label": score}.

    Args:
        path: of a file, plain, .gz or .zst.

    Raises:
        UserError: the format is none of these, or a row is malformed; names the file and the line.
    """
    if match := INPUT.fullmatch(Path(path).name):
        scores = Path(path).with_name("{}.gs.{}".format(*match.groups()))
        return _read_scored(path, scores)
    rows = _iter_rows(path)
    first, row = next(rows)
    columns = find_columns(row, f"{path}, line {first}")
    if not columns.has_header:
        rows = itertools.chain([(first, row)], rows)
    return _read_rows(path, rows, columns)


def list_files(path: str) -> list[str]:
    """Lists the files of pairs that a path names: itself, or all STS.input.*.txt of a folder.

    Raises:
        UserError: the folder has none.
    """
    if not Path(path).is_dir():
        return [path]
    files = [str(x) for x in sorted(Path(path).iterdir()) if INPUT.fullmatch(x.name)]
    if not files:
        raise UserError(f"{path}: has no STS.input.*.txt")
    return files


def find_columns(row: Any, where: str) -> Columns:
    """Finds the columns of a file by its first row.

    Args:
        row: cells, of a header or not; an object of JSON.

    Raises:
        UserError: no format begins so.
    """
    names: Sequence[str] = list(row) if isinstance(row, Mapping) else [x.strip() for x in row]
    named = next((x for x in NAMES if {*x} <= {*names}), None)
    if named and isinstance(row, Mapping):
        return Columns(named[:2], named[2])
    if named:
        first, second, score = map(names.index, named)
        return Columns((first, second), score, len(names), has_header=True)
    # STS-B's own files: genre, file, year, number, score, texts, and perhaps their sources.
    if len(names) >= 7 and NUMBER.fullmatch(names[4]):
        return Columns((5, 6), 4, 7)
    if len(names) == 3 and not isinstance(row, Mapping) and NUMBER.fullmatch(names[2]):
        return Columns((0, 1), 2, 3)
    raise UserError(f"{where}: tells no format of scored pairs, {', '.join(names)!r:.100}: {WANTS}")


def _iter_rows(path: str) -> Iterator[tuple[int, Any]]:
    """Yields the rows of a table with their lines: cells, or objects of JSON."""
    first = next(files.lines(path))[1]
    if first.lstrip().startswith("{"):
        for line, text in files.lines(path):
            yield line, files.parse_json(text, f"{path}, line {line}")
        return
    # By its first line: STS-B's own .csv is parted by tabs.
    kind = "tsv" if "\t" in first else "csv"
    yield from table.split_rows(path, kind, kind == "csv", "utf-8")


def _read_rows(path: str, rows: Iterator[tuple[int, Any]], columns: Columns) -> Read:
    def cells(row: Any, where: str) -> Any:
        if isinstance(columns.score, str):  # of JSON
            return {x: files.field(row, str(x), object, where) for x in layout.columns()}
        if len(row) < columns.width:
            raise UserError(f"{where}: {len(row)} columns, and there should be {columns.width}")
        return row

    layout = _make_layout(columns)
    places = ((f"{path}, line {line}", row) for line, row in rows)
    return records.examples(places, layout, cells, strict=True)


def _make_layout(columns: Columns) -> Layout:
    fields: dict[str, Any] = dict(id="", labels=None, number=True, skip=(), empty="error")
    return Layout(columns.texts, columns.score, **fields)


def _read_scored(path: str, scores: Path) -> Read:
    """Reads pairs whose scores are the lines of another file; those without one are left out."""
    if not scores.is_file():
        raise UserError(f"{path}: its scores are to be in {scores}, and that is not there")
    # Blank lines at its end are pairs without a score: `files.lines` would drop them.
    numbers = files.text(scores).removesuffix("\n").split("\n")
    pairs, skipped, rows = list(files.lines(path)), Skipped(), []
    if len(numbers) != len(pairs):
        raise UserError(f"{scores}: {len(numbers):,} scores of {len(pairs):,} pairs in {path}")
    for (line, text), number in zip(pairs, numbers, strict=True):
        where, parts = f"{path}, line {line}", text.split("\t")
        if not number.strip():
            skipped.add("pairs that nobody scored", where)
        elif len(parts) < 2:
            raise UserError(f"{where}: want two texts, parted by a tab")
        else:
            # The score is of another file, which is named where it is no number.
            records.parse_number(number, f"{scores}, line {line}")
            rows.append((where, [*parts[:2], number]))
    layout = _make_layout(Columns((0, 1), 2))
    result = records.examples(rows, layout, lambda row, where: row, strict=True)
    return Read(result.examples, [*result.notes, *skipped.notes()])
