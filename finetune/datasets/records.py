"""Builds examples of texts and a label from rows of named or numbered cells."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from finetune.datasets import Example, Read
from finetune.datasets.files import Skipped, check_text, rename_label
from pretrain.runtime.errors import UserError

Column = str | int
EMPTY = ("skip", "error", "keep")  # a row with an empty cell: see `table.read`
GAPS = "rows with an empty text or label (data.empty='error' refuses them, 'keep' reads the texts)"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The columns of a table and their meaning; `table.read` describes the fields."""

    texts: Sequence[Column]
    label: Column
    id: Column
    labels: Mapping[str, str] | None
    number: bool
    skip: Sequence[str]
    empty: str
    titles: Sequence[Column] = ()  # the texts' names in errors, if other than `texts`
    until: str = ""
    needs_label: bool = True
    extra: Sequence[Column] = ()

    def columns(self) -> list[Column]:
        """Lists the columns that have to be there."""
        label = self.label if self.needs_label else ""
        named = (column for column in (label, self.id) if column != "")
        return [*self.texts, *named, *self.extra]

    def may_lack_label(self, names: Sequence[Column]) -> bool:
        """Returns whether the label's column is named, is not among these, and need not be."""
        is_named = isinstance(self.label, str) and self.label != ""
        return is_named and not self.needs_label and self.label not in names

    def example(self, row: Any, where: str) -> Example:
        """Builds the example of a row, its texts stripped; UserError if the row is malformed."""
        example: Example = {
            "texts": [
                self._text(row[column], title, where)
                for column, title in zip(self.texts, self.titles or self.texts, strict=True)
            ],
            "label": self._label(row, where),
            "where": where,
        }
        if self.extra:
            example["extra"] = [plain_name(row[column], where) for column in self.extra]
        return example if self.id == "" else {**example, "id": plain_name(row[self.id], where)}

    # Before the label is checked: SNLI's "-" is not among the permitted ones.
    def is_skipped(self, row: Any) -> bool:
        """Returns whether the label is one of those to leave out."""
        return self.label != "" and bool(self.skip) and row[self.label] in self.skip

    def find_gap(self, row: Any) -> str:
        """Names the first empty text of a row, or its label where one is needed; "": none is."""
        for column, title in zip(self.texts, self.titles or self.texts, strict=True):
            if is_blank(row[column]):
                return name_column(title)
        is_needed = self.label != "" and self.needs_label
        return "the label" if is_needed and is_blank(row[self.label]) else ""

    def gap_example(self, row: Any, where: str, gap: str) -> Example:
        """Builds the example of a row with an empty text, whose prediction is null.

        It has "gap", the reason, and no label, as nothing that is predicted of it can be right.
        """
        row = row.copy()  # a mapping or a list, by column
        for column in self.texts:
            row[column] = "" if is_blank(row[column]) else row[column]
        unlabelled = dataclasses.replace(self, label="", empty="keep")
        return {**unlabelled.example(row, where), "gap": f"{gap} is empty"}

    def _text(self, value: Any, title: Column, where: str) -> str:
        keep = self.empty == "keep"
        value = "" if keep and value is None else value
        return check_text(value, name_column(title), where, keep).strip()

    def _label(self, row: Any, where: str) -> str | float | None:
        if self.label == "":
            return None
        value = row.get(self.label) if isinstance(row, dict) else row[self.label]
        if not self.needs_label and is_blank(value):
            return None
        if self.number:
            return parse_number(value, where)
        # TREC's coarse label is what stands before the colon.
        name = plain_name(value, where)
        return rename_label(name.split(self.until)[0] if self.until else name, self.labels, where)


def examples(rows: Iterable[tuple[str, Any]], layout: Layout, cells: Any, strict: bool) -> Read:
    """Builds the examples of a table.

    Args:
        rows: pairs of a place, for errors, and a row as the file has it.
        cells: maps a row and its place to cells by column.
        strict: whether a malformed row is an error; else it is left out and counted.
    """
    examples, skipped = [], Skipped()
    for where, raw in rows:
        try:
            row = cells(raw, where)
            if layout.is_skipped(row):
                skipped.add(f"rows of label {row[layout.label]!r}", where)
            elif layout.empty == "skip" and (gap := layout.find_gap(row)):
                if layout.needs_label:
                    skipped.add(GAPS, where, most=3)
                else:  # to predict: no row of the file may be lost
                    examples.append(layout.gap_example(row, where, gap))
            else:
                examples.append(layout.example(row, where))
        except UserError as error:  # of this row; a file that cannot be read raises outside
            if strict:
                raise
            skipped.add("bad rows", str(error))
    return Read(examples, skipped.notes())


def is_blank(value: Any) -> bool:
    """Returns whether a cell has nothing in it: blanks, or JSON's and Parquet's null."""
    return value is None or (isinstance(value, str) and not value.strip())


def name_column(title: Column) -> str:
    return repr(title) if isinstance(title, str) else f"column {title}"


def plain_name(value: Any, where: str) -> str:
    """Returns a cell as a name; numbers and booleans as JSON writes them."""
    if isinstance(value, str):
        return value.strip()
    # JSON's true and 1.0 are the labels "true" and "1.0", as in the file.
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise UserError(f"{where}: a label or id should be text or a number, and is {value!r:.60}")


def parse_number(value: Any, where: str) -> float:
    """Returns a number to regress to; UserError if it is not finite."""
    try:
        # float(True) is 1.0, which nobody meant.
        result = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):  # the last by an integer of 400 digits
        result = math.nan
    if not math.isfinite(result):
        raise UserError(f"{where}: the label {value!r:.60} is not a number")
    return result
